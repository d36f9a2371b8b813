package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// said is one line of what a part tells: a name and a figure, or several.
type said struct {
	Name    string             `json:"name"`
	Figure  float64            `json:"figure,omitempty"`
	Figures map[string]float64 `json:"figures,omitempty"`
}

// teller is how a part tells its figures.
type teller struct {
	out io.Writer
	err error
}

func (t *teller) say(name string, figure float64) { t.write(said{Name: name, Figure: figure}) }

func (t *teller) write(one said) {
	line, err := json.Marshal(one)
	if err == nil {
		_, err = t.out.Write(append(line, '\n'))
	}
	if t.err == nil {
		t.err = err
	}
}

// child is a part in a process of its own. It ends when its standard input does.
type child struct {
	cmd   *exec.Cmd
	in    io.Closer
	lines *bufio.Scanner
}

// start starts a part with the same options, and more.
func start(ctx context.Context, o options, part string, more ...string) (*child, error) {
	args := append([]string{"-part", part, "-dir", o.dir, "-receipts", strconv.Itoa(o.receipts), "-ending", strconv.Itoa(o.ending),
		"-rounds", strconv.Itoa(o.rounds), "-span", o.span.String(), "-callers", strconv.Itoa(o.callers), "-from", strconv.Itoa(o.from)}, more...)
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, program, args...)}
	c.cmd.Stderr = os.Stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.in, c.lines = in, bufio.NewScanner(out)
	return c, c.cmd.Start()
}

// listen waits for the next thing that the part tells.
func (c *child) listen() (said, error) {
	var one said
	if !c.lines.Scan() {
		return one, fmt.Errorf("a part ended early: %w", c.cmd.Wait())
	}
	return one, json.Unmarshal(c.lines.Bytes(), &one)
}

// hear waits for the figure with this name, which must come next.
func (c *child) hear(name string) (float64, error) {
	one, err := c.listen()
	if err == nil && one.Name != name {
		err = fmt.Errorf("a part tells %s, and not %s", one.Name, name)
	}
	return one.Figure, err
}

// end lets the part put away what it has, and waits for it.
func (c *child) end() error {
	_ = c.in.Close() // it may have ended by itself
	for c.lines.Scan() {
	}
	return c.cmd.Wait()
}

// kill ends the process at once, as a crash would.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = c.cmd.Wait() // it says that it was killed
	return nil
}

// resident is the memory that a living process has now, in bytes, and the most that it ever had.
func (c *child) resident() (now, peak float64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kilobytes, _ := strconv.ParseFloat(fields[1], 64)
		switch fields[0] {
		case "VmRSS:":
			now = kilobytes * 1024
		case "VmHWM:":
			peak = kilobytes * 1024
		}
	}
	return now, peak
}

// peak is the most memory that a process had that has ended, in bytes.
func (c *child) peak() float64 {
	usage, ok := c.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	const unit = 1024 // of Linux
	return float64(usage.Maxrss) * unit
}

// heap is what this process's heap holds.
func heap() float64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse)
}

// disk is what files take, by the folder at the top that they stand in. A file with several names counts once, where
// the state has it.
type disk map[string]float64

func (d disk) total() (sum float64) {
	for _, n := range d {
		sum += n
	}
	return sum
}

func diskOf(dir string) (disk, error) {
	d, seen := disk{}, map[uint64]bool{}
	for _, only := range [...]string{"state-", ""} {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			inside, _ := filepath.Rel(dir, path) // it is below dir
			top, _, _ := strings.Cut(inside, string(filepath.Separator))
			stat, ok := info.Sys().(*syscall.Stat_t)
			if !ok || !strings.HasPrefix(top, only) || seen[stat.Ino] {
				return nil
			}
			seen[stat.Ino] = true
			const block = 512
			d[strings.TrimRight(top, "-0123456789")] += float64(stat.Blocks * block)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return d, nil
}
