package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// onTerminal runs the program on a pseudo-terminal with this input, and returns the output.
func onTerminal(t *testing.T, env []string, typed string, args ...string) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer master.Close()
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	c := exec.Command(program, args...)
	c.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "TERM=xterm"}, env...)
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	if _, err := io.WriteString(master, typed); err != nil {
		t.Fatal(err)
	}
	shown := make(chan string)
	go func() {
		text, _ := io.ReadAll(master) // ends with an error when the terminal is closed
		shown <- string(text)
	}()
	err = c.Run()
	_ = slave.Close()
	text := <-shown
	require.False(t, err != nil && c.ProcessState == nil)
	return text
}

// TestColour_OnlyOnATerminalAndOnlyIfWanted: for data and for errors.
func TestColour_OnlyOnATerminalAndOnlyIfWanted(t *testing.T) {
	noServer := "FLIGHTD_ADDR=127.0.0.1:1"
	for _, test := range []struct {
		name   string
		env    []string
		args   []string
		colour bool
	}{
		{"a terminal", nil, []string{"doctor"}, true},
		{"an error", nil, []string{"fly"}, true},
		{"--no-color", nil, []string{"doctor", "--no-color"}, false},
		{"NO_COLOR", []string{"NO_COLOR=0"}, []string{"doctor"}, false},
		{"NO_COLOR, an error before the settings are resolved", []string{"NO_COLOR=1"}, []string{"fly"}, false},
		{"--no-color, an error", nil, []string{"version", "extra", "--no-color"}, false},
		{"empty NO_COLOR", []string{"NO_COLOR="}, []string{"doctor"}, true},
		{"NO_COLOR, but a flag says otherwise", []string{"NO_COLOR=1"}, []string{"doctor", "--no-color=false"}, true},
		{"dumb", []string{"TERM=dumb"}, []string{"doctor"}, false},
		{"JSON", nil, []string{"doctor", "-o", "json"}, false},
	} {
		text := onTerminal(t, append([]string{noServer}, test.env...), "", test.args...)
		require.NotEmpty(t, text, "%s: %q", test.name, text)
		require.Equal(t, test.colour, strings.Contains(text, "\x1b["), "%s: %q", test.name, text)
	}
	r := flightd(nil, "doctor", "--server", "127.0.0.1:1")
	require.NotContains(t, r.out+r.err, "\x1b", "not on a terminal: %v", r)
}

// TestConfirm_AsksAPersonAndNobodyElse: any answer but yes changes nothing; --yes suppresses the question.
func TestConfirm_AsksAPersonAndNobodyElse(t *testing.T) {
	s, _ := startFake(t)
	s.flightd("exec", "--key", "order-42", "--", "sh", "-c", "exit 3")
	env := []string{"FLIGHTD_ADDR=" + s.url()}
	resolve := []string{"doubt", "resolve", "order-42", "--fail", "--reason", "looked"}
	for _, typed := range []string{"n\n", "\n", "maybe\n"} {
		text := onTerminal(t, env, typed, resolve...)
		require.Contains(t, text, "[y/N]", "%q: %q", typed, text)
		require.Contains(t, text, "nothing was changed", "%q: %q", typed, text)
		require.Equal(t, "in_doubt", s.flight("order-42").State, "%q: %q", typed, text)
	}
	text := onTerminal(t, env, "y\n", resolve...)
	require.Contains(t, text, "[y/N]", "yes: %q", text)
	require.Equal(t, "failed", s.flight("order-42").State, "yes: %q", text)
	text = onTerminal(t, env, "", "flights", "retry", "order-42", "--reason", "a test", "--yes")
	require.NotContains(t, text, "[y/N]", "--yes: %q", text)
	require.Equal(t, "ready", s.flight("order-42").State, "--yes: %q", text)
	for verb, asked := range map[string]string{"redact": "for good? [y/N]", "free": "although the effect may have happened? [y/N]"} {
		text := onTerminal(t, env, "n\n", "flights", verb, "order-42", "--reason", "a test")
		require.Contains(t, text, asked, "%s: the question does not name the consequence: %q", verb, text)
	}
	text = onTerminal(t, env, "y\n", "flights", "free", "order-42")
	require.Contains(t, text, "--reason is missing", "no reason: %q", text)
	require.NotContains(t, text, "[y/N]", "no reason: %q", text)
	r := s.flightd("flights", "cancel", "order-42", "--reason", "a test")
	require.Equal(t, 0, r.code, "no terminal: %v", r)
	require.NotContains(t, r.err, "[y/N]", "no terminal: %v", r)
}

// TestConfirm_ManyFlights: the question has their number.
func TestConfirm_ManyFlights(t *testing.T) {
	s, _ := startFake(t)
	s.doubts(2)
	for _, test := range []struct{ typed, state string }{{"n\n", "in_doubt"}, {"y\n", "failed"}} {
		text := onTerminal(t, []string{"FLIGHTD_ADDR=" + s.url()}, test.typed, "doubt", "resolve", "--action", "mail", "--fail", "--reason", "looked")
		require.Contains(t, text, "2 flights: it did not happen and must not run; go on? [y/N]")
		require.Equal(t, map[string]int{test.state: 2}, s.states(), "%q", text)
	}
}
