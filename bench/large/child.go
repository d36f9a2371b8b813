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

// metric is one line of a part's output: a name with one value or several.
type metric struct {
	Name   string             `json:"name"`
	Value  float64            `json:"figure,omitempty"`
	Values map[string]float64 `json:"figures,omitempty"`
}

// metricWriter writes the metrics of a part. err is the first error.
type metricWriter struct {
	out io.Writer
	err error
}

func (w *metricWriter) report(name string, figure float64) {
	w.write(metric{Name: name, Value: figure})
}

func (w *metricWriter) write(one metric) {
	line, err := json.Marshal(one)
	if err == nil {
		_, err = w.out.Write(append(line, '\n'))
	}
	if w.err == nil {
		w.err = err
	}
}

// child is a part in its own process. The process ends when its standard input is closed.
type child struct {
	cmd   *exec.Cmd
	in    io.Closer
	lines *bufio.Scanner
}

// startPart starts a part with the same options and additional arguments.
func startPart(ctx context.Context, o options, part string, more ...string) (*child, error) {
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

// next waits for the next metric of the part.
func (c *child) next() (metric, error) {
	var one metric
	if !c.lines.Scan() {
		return one, fmt.Errorf("the part ended early: %w", c.cmd.Wait())
	}
	return one, json.Unmarshal(c.lines.Bytes(), &one)
}

// expect waits for the next metric, which must have this name, and returns its value.
func (c *child) expect(name string) (float64, error) {
	one, err := c.next()
	if err == nil && one.Name != name {
		err = fmt.Errorf("unexpected output of the part: %s, not %s", one.Name, name)
	}
	return one.Value, err
}

// stop closes the part's standard input and waits for its end.
func (c *child) stop() error {
	_ = c.in.Close() // fails if the process has ended already
	for c.lines.Scan() {
	}
	return c.cmd.Wait()
}

// kill ends the process with SIGKILL.
func (c *child) kill() error {
	if err := c.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = c.cmd.Wait() // always returns the error "signal: killed"
	return nil
}

// resident returns the resident memory of the running process and its peak, in bytes.
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

// peak returns the peak of the resident memory of a process that has ended, in bytes.
func (c *child) peak() float64 {
	usage, ok := c.cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	const unit = 1024 // Maxrss is in KiB on Linux
	return float64(usage.Maxrss) * unit
}

// heap returns the bytes in use in this process's heap.
func heap() float64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse)
}

// disk is the disk space by top-level folder, in bytes. A file with several hard links counts once, for the state
// folder if one of its links is there.
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
			inside, _ := filepath.Rel(dir, path) // cannot fail: path is below dir
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
