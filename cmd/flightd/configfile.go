package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

// configFile is the settings file. Every field is optional; an unknown field is an error.
type configFile struct {
	Server    addressList `json:"server,omitempty" yaml:"server"`
	Namespace string      `json:"namespace,omitempty" yaml:"namespace"`
	Output    string      `json:"output,omitempty" yaml:"output"`
	NoColor   *bool       `json:"no_color,omitempty" yaml:"no_color"`
	Data      string      `json:"data,omitempty" yaml:"data"`
	Listen    string      `json:"listen,omitempty" yaml:"listen"`

	ListenMetrics string `json:"listen_metrics,omitempty" yaml:"listen_metrics"`
	LogLevel      string `json:"log_level,omitempty" yaml:"log_level"`
	LogFormat     string `json:"log_format,omitempty" yaml:"log_format"`
}

// addressList is one address or a list of addresses.
type addressList []string

// UnmarshalYAML implements yaml.InterfaceUnmarshaler.
func (l *addressList) UnmarshalYAML(read func(any) error) error {
	var one string
	if read(&one) == nil {
		*l = addressList{one}
		return nil
	}
	return read((*[]string)(l))
}

// value returns the file's value of a setting; "": the file does not set it.
func (f configFile) value(s setting) string {
	switch s.name {
	case "server":
		return strings.Join(f.Server, ",")
	case "namespace":
		return f.Namespace
	case "output":
		return f.Output
	case "no_color":
		if f.NoColor != nil {
			return fmt.Sprint(*f.NoColor)
		}
	case "data":
		return f.Data
	case "listen":
		return f.Listen
	case "listen_metrics":
		return f.ListenMetrics
	case "log_level":
		return f.LogLevel
	case "log_format":
		return f.LogFormat
	}
	return ""
}

// configPath returns the path of the settings file; "": neither XDG_CONFIG_HOME nor HOME is set.
func (a *app) configPath() string {
	dir := a.env("XDG_CONFIG_HOME")
	if !filepath.IsAbs(dir) {
		home := a.env("HOME")
		if !filepath.IsAbs(home) {
			return ""
		}
		dir = filepath.Join(home, ".config")
	}
	return filepath.Join(dir, "flightd", "config.yaml")
}

// readConfig reads the settings file. A missing file is not an error; an unreadable one is.
func (a *app) readConfig() (configFile, error) {
	path := a.configPath()
	if path == "" {
		return configFile{}, nil
	}
	data, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return configFile{}, nil
	case err != nil:
		return configFile{}, &exitError{code: exitConfig, err: fmt.Errorf("read the settings file: %w", err)}
	}
	f, err := parseConfig(data)
	if err != nil {
		return f, &exitError{code: exitConfig, err: fmt.Errorf("%s: %w", path, err), hint: "run flightd help settings for the list of settings"}
	}
	return f, nil
}

// parseConfig decodes settings and rejects unknown fields. Its errors show the line, with a caret.
func parseConfig(data []byte) (f configFile, err error) {
	if err := yaml.UnmarshalWithOptions(data, &f, yaml.Strict()); err != nil {
		return configFile{}, errors.New(strings.TrimSpace(yaml.FormatError(err, false, true)))
	}
	return f, nil
}
