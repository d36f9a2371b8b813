package netbed

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
)

// Link is the way of packets from one host to another.
type Link struct {
	From, To *Host
	Port     int // only TCP packets to or from this port; 0: all packets
}

// BothWays returns the links between two hosts in both directions.
func BothWays(a, b *Host) []Link { return []Link{{From: a, To: b}, {From: b, To: a}} }

// CutLinks drops the packets of these links, besides those that are cut already. Open connections get no error. It needs the
// program nft. After an error, some of the links may be cut.
func (b *Bed) CutLinks(links ...Link) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cuts = append(b.cuts, links...)
	return b.filterLocked()
}

// HealLinks undoes the cuts of these links; without links it undoes all cuts.
func (b *Bed) HealLinks(links ...Link) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cuts = slices.DeleteFunc(b.cuts, func(cut Link) bool { return len(links) == 0 || slices.Contains(links, cut) })
	return b.filterLocked()
}

// filterLocked replaces the packet filter of each host. A packet is dropped where it arrives: the sender gets no error.
func (b *Bed) filterLocked() error {
	var errs []error
	for _, h := range b.hosts {
		var rules strings.Builder
		rules.WriteString("table inet netbed {}\ndelete table inet netbed\ntable inet netbed {\nchain input {\ntype filter hook input priority 0; policy accept;\n")
		for _, cut := range b.cuts {
			switch {
			case cut.To != h:
			case cut.Port == 0:
				fmt.Fprintf(&rules, "ip saddr %s drop\n", cut.From.Address)
			default:
				fmt.Fprintf(&rules, "ip saddr %s tcp dport %d drop\nip saddr %s tcp sport %d drop\n", cut.From.Address, cut.Port, cut.From.Address, cut.Port)
			}
		}
		rules.WriteString("}\n}\n")
		nft := exec.Command("nft", "-f", "-")
		nft.Stdin = strings.NewReader(rules.String())
		var output strings.Builder
		nft.Stdout, nft.Stderr = &output, &output
		err := h.Start(nft)
		if err == nil {
			err = nft.Wait()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("netbed: filter the packets of host %s: %w: %s", h.Name, err, output.String()))
		}
	}
	return errors.Join(errs...)
}
