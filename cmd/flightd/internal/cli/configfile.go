package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
	"github.com/spf13/cobra"

	"github.com/flightd/flightd/internal/yamlfile"
)

// ConfigEnv is the environment variable that names the settings file.
const ConfigEnv = "FLIGHTD_CONFIG"

// configLocation is the settings file of one invocation.
type configLocation struct {
	Path   string // "": neither XDG_CONFIG_HOME nor HOME is set
	from   string // the flag or variable that names the file, which must exist then; "": the default path
	shared bool   // a user's command fell back to the machine's file, which this user may be unable to read
}

// FindConfig returns the settings file: the one that --config or FLIGHTD_CONFIG names. Else serve, which runs for no user,
// reads the machine's file. ready reads the machine's file if there is one, because it checks the node of that file. Every
// other command reads the user's file and, if there is none, the machine's. dev never reads the machine's: it would serve
// a production data directory without credentials.
func (a *App) FindConfig(cmd *cobra.Command) configLocation {
	if f := cmd.Flag("config"); f != nil && f.Changed {
		return configLocation{Path: f.Value.String(), from: "flag --config"}
	}
	if path := a.Env(ConfigEnv); path != "" {
		return configLocation{Path: path, from: "env " + ConfigEnv}
	}
	user, machine := a.userConfigPath(), ""
	if a.Etc != "" {
		machine = filepath.Join(a.Etc, "flightd", "flightd.yaml")
	}
	switch name := cmd.Name(); {
	case name == "serve" && machine != "", name == "ready" && exists(machine):
		return configLocation{Path: machine}
	case name != "dev" && !exists(user) && exists(machine):
		return configLocation{Path: machine, shared: true}
	}
	return configLocation{Path: user}
}

// userConfigPath returns the path of the user's settings file, or "" if neither XDG_CONFIG_HOME nor HOME is set.
func (a *App) userConfigPath() string {
	dir := a.Env("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		home := a.Env("HOME")
		if !filepath.IsAbs(home) {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "flightd", "config.yaml")
}

// exists reports whether there is a file at this path. An empty path has none.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// read reads the settings file. A missing file is an error only if it was named.
func (l configLocation) read() (map[string]string, error) {
	if l.Path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(l.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && l.from == "", errors.Is(err, fs.ErrPermission) && l.shared:
		return nil, nil
	case err != nil && l.from != "":
		return nil, &Error{Code: ExitConfig, Err: fmt.Errorf("read the settings file from %s: %w", l.from, err)}
	case err != nil:
		return nil, &Error{Code: ExitConfig, Err: fmt.Errorf("read the settings file: %w", err)}
	}
	f, err := ParseConfig(data)
	if err != nil {
		return nil, &Error{Code: ExitConfig, Err: fmt.Errorf("%s: %w", l.Path, err), Hint: "run flightd help settings for the list of settings"}
	}
	return f, nil
}

// ParseConfig reads a settings file: one mapping from names of settings to values of their kinds. Every setting is
// optional, and a list is joined by commas. An unknown or duplicate name, another type or a second document is an error, which has the line, the column
// and a caret, and no secret.
func ParseConfig(data []byte) (map[string]string, error) {
	bodies, err := yamlfile.Parse(data)
	if err != nil {
		return nil, configError(err)
	}
	f := map[string]string{}
	for i, body := range bodies {
		if i > 0 {
			return nil, configErrorAt(body, "a settings file has one document")
		}
		fields, ok := body.(ast.MapNode)
		if !ok {
			return nil, configErrorAt(body, "want lines of the form NAME: VALUE")
		}
		for field := fields.MapRange(); field.Next(); {
			name := field.Key().GetToken().Value
			s := namedSetting(name)
			if s == nil {
				return nil, configErrorAt(field.Key(), strings.TrimSuffix("unknown setting "+name+"; "+DidYouMean(Nearest(name, settingNames())), "; "))
			}
			value, want := configValue(*s, field.Value())
			if want != "" {
				at := field.Value()
				if at == nil || at.Type() == ast.NullType {
					at = field.Key()
				}
				return nil, configErrorAt(at, s.Name+" takes "+want)
			}
			f[s.Name] = value
		}
	}
	return f, nil
}

// configValue returns the value of a setting, or a description of the type that it takes.
func configValue(s setting, n ast.Node) (value, want string) {
	switch v := n.(type) {
	case *ast.BoolNode:
		if s.Kind == BoolSetting {
			return fmt.Sprint(v.Value), ""
		}
	case *ast.StringNode:
		if s.Kind != BoolSetting {
			return v.Value, ""
		}
	case *ast.SequenceNode:
		var all []string
		for _, element := range v.Values {
			text, ok := element.(*ast.StringNode)
			if !ok {
				break
			}
			all = append(all, text.Value)
		}
		if s.Kind == ListSetting && len(all) == len(v.Values) {
			return strings.Join(all, ","), ""
		}
	}
	switch s.Kind {
	case BoolSetting:
		return "", "true or false"
	case ListSetting:
		return "", "a text, or a list of texts"
	}
	return "", "a text; a number or a word such as true needs quotation marks"
}

func settingNames() (names []string) {
	for _, s := range AllSettings() {
		names = append(names, s.Name)
	}
	return names
}

// configErrorAt reports a mistake at a node of the file.
func configErrorAt(n ast.Node, message string) error {
	return configError(&yaml.SyntaxError{Message: message, Token: firstToken(n)})
}

// firstToken returns the token at which a node begins.
func firstToken(n ast.Node) *token.Token {
	switch v := n.(type) {
	case *ast.MappingNode:
		if !v.IsFlowStyle && len(v.Values) > 0 {
			return firstToken(v.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return firstToken(v.Key)
	}
	return n.GetToken()
}

// secretInConfig matches the value of the setting token, and every token of flightd.
var secretInConfig = regexp.MustCompile(`(?m)(\btoken["']?\s*:[ \t]*)[^\n]+|fltd_[^\s"',}\]]+`)

// configError formats an error of package yaml with the lines around its position. They may have a secret, which is
// hidden.
func configError(err error) error {
	text := secretInConfig.ReplaceAllString(strings.TrimSpace(yaml.FormatError(err, false, true)), "$1(hidden)")
	return errors.New(text)
}
