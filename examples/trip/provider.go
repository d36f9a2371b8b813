package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// provider is a fake provider. Like real ones it acts once per idempotency key, and answers a repeat as it has answered before.
type provider struct {
	name     string
	mu       sync.Mutex // guards the fields below
	requests int
	done     map[string]bool
	book     []string
}

// ServeHTTP serves POST /VERB/ID and GET /book.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.Method == http.MethodGet {
		_, _ = fmt.Fprintf(w, "%s: %d requests, %d effects: %s\n", p.name, p.requests, len(p.book), strings.Join(p.book, ", "))
		return
	}
	p.requests++
	if cents, _ := strconv.Atoi(r.FormValue("cents")); p.name == "card" && cents > 1_000_00 {
		w.WriteHeader(http.StatusPaymentRequired)
		_, _ = io.WriteString(w, "the limit is 1000.00")
		return
	}
	effect := strings.TrimPrefix(r.URL.Path, "/")
	if key := r.Header.Get("Idempotency-Key"); !p.done[key] {
		p.done[key] = true
		p.book = append(p.book, strings.Replace(effect, "/", " ", 1))
	}
	if p.requests == 1 && (p.name == "airline" || p.name == "mail") {
		panic(http.ErrAbortHandler) // it has acted, and its answer is lost
	}
	_ = json.NewEncoder(w).Encode(confirmation{effect[strings.IndexByte(effect, '/')+1:]})
}

// serveProvider serves a provider until the program that has started it ends.
func serveProvider(name string) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + l.Addr().String())
	go func() { _ = http.Serve(l, &provider{name: name, done: make(map[string]bool)}) }()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// startProviders starts this program again for each provider, and returns their URLs by name.
func startProviders(names ...string) (urls map[string]string, end func() error, err error) {
	urls, end = make(map[string]string), func() error { return nil }
	for _, name := range names {
		cmd := exec.Command(os.Args[0], "provider", name)
		stdin, in := cmd.StdinPipe()
		stdout, out := cmd.StdoutPipe()
		if err := errors.Join(in, out, cmd.Start()); err != nil {
			return nil, nil, errors.Join(err, end())
		}
		others := end
		end = func() error { return errors.Join(stdin.Close(), cmd.Wait(), others()) }
		line, err := bufio.NewReader(stdout).ReadString('\n')
		if err != nil {
			return nil, nil, errors.Join(err, end())
		}
		urls[name] = strings.TrimSpace(line)
	}
	return urls, end, nil
}

// printBook prints the book of a provider.
func printBook(out io.Writer, url string) error {
	resp, err := http.Get(url + "/book")
	if err != nil {
		return err
	}
	_, err = io.Copy(out, resp.Body)
	return errors.Join(err, resp.Body.Close())
}
