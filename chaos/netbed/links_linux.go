package netbed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/florianl/go-nfqueue/v2"
	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Link is the way of packets from one host to another.
type Link struct {
	From, To *Host
	Port     int // only TCP packets to or from this port; 0: all packets
}

// BothWays returns the links between two hosts in both directions.
func BothWays(a, b *Host) []Link { return []Link{{From: a, To: b}, {From: b, To: a}} }

// Impairment is the harm that a fault does to the packets of each of its links. Fields may be combined.
type Impairment struct {
	Loss   int           // percent of the packets that are dropped, chosen at random; 100 cuts the link
	Delay  time.Duration // packets are held this long
	Jitter time.Duration // packets are held up to this much longer, chosen at random, so that they overtake each other
}

// Fault is an impairment of some links. It lasts until it is healed, or until this process dies: then the links of a delay drop
// all packets.
type Fault struct {
	bed     *Bed
	filters []*filter // nil when the fault is healed
	bites   int
}

// filter is the packet filter of one link of a fault, at the receiving host: the sender gets no error. It is a table of its own,
// named by the slot: a packet passes the filters of all faults, in an order that no caller can rely on, until one drops it.
type filter struct {
	slot    int
	host    *Host
	table   *nftables.Table
	release func() error // delivers the packets that are held and closes their queue; nil without a delay
}

// Impair starts a fault of these links, besides the faults that they have already. Open connections get no error. After an
// error, no link has this fault.
func (b *Bed) Impair(how Impairment, links ...Link) (*Fault, error) {
	if len(links) == 0 || how == (Impairment{}) {
		return nil, errors.New("netbed: a fault without links, or that does nothing to them")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	f := &Fault{bed: b}
	for _, link := range links {
		if err := link.To.Do(func() error { return b.addFilterLocked(f, how, link) }); err != nil {
			_, healed := f.healLocked()
			return nil, errors.Join(fmt.Errorf("netbed: impair the link from host %s to host %s: %w", link.From.Name, link.To.Name, err), healed)
		}
	}
	return f, nil
}

// Heal ends the fault and delivers the packets that it holds. Other faults of the same links go on. Heal returns how many
// packets the fault has dropped or delayed; a packet that was never sent is not among them. Once healed, the fault keeps its
// bites.
func (f *Fault) Heal() (bites int, err error) {
	f.bed.mu.Lock()
	defer f.bed.mu.Unlock()
	return f.healLocked()
}

func (f *Fault) healLocked() (int, error) {
	var errs []error
	for _, n := range f.filters {
		err := n.host.Do(func() error {
			nft := &nftables.Conn{}
			nft.FlushTable(n.table) // no packet is held from here on
			err := nft.Flush()
			if n.release != nil {
				err = errors.Join(err, n.release())
			}
			counter, counted := nft.ResetObject(&nftables.CounterObj{Table: n.table, Name: "bites"})
			if c, ok := counter.(*nftables.CounterObj); ok {
				f.bites += int(c.Packets)
			}
			return errors.Join(err, counted)
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("netbed: heal a link to host %s: %w", n.host.Name, err))
		}
		f.bed.slots[n.slot] = nil
	}
	f.filters = nil
	return f.bites, errors.Join(errs...)
}

// addFilterLocked adds the filter of a link to a fault, on a thread of the receiving host: the libraries' own way into its network namespace leads
// back to that of this process, which a user namespace does not permit. It takes the lowest free slot: tables are never deleted, because the
// kernel then drops all packets that any queue of the host holds.
func (b *Bed) addFilterLocked(f *Fault, how Impairment, link Link) error {
	slot := slices.Index(b.slots, nil)
	if slot < 0 {
		slot, b.slots = len(b.slots), append(b.slots, nil)
	}
	n := &filter{slot: slot, host: link.To, table: &nftables.Table{Name: fmt.Sprint("netbed", slot), Family: nftables.TableFamilyIPv4}}
	if how.Delay > 0 || how.Jitter > 0 { // the queue first: without a reader the kernel drops the packets
		if err := n.hold(how.Delay, how.Jitter); err != nil {
			return fmt.Errorf("open a packet queue (needs NFQUEUE in the kernel): %w", err)
		}
	}
	b.slots[slot], f.filters = f, append(f.filters, n)

	nft := &nftables.Conn{}
	nft.AddTable(n.table)
	nft.AddObj(&nftables.CounterObj{Table: n.table, Name: "bites"})
	input := nft.AddChain(&nftables.Chain{Name: "input", Table: n.table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookInput, Priority: nftables.ChainPriorityFilter})
	impaired := nft.AddChain(&nftables.Chain{Name: "impaired", Table: n.table})
	rule := func(chain *nftables.Chain, exprs ...expr.Any) {
		nft.AddRule(&nftables.Rule{Table: n.table, Chain: chain, Exprs: exprs})
	}
	bite, drop := &expr.Objref{Type: unix.NFT_OBJECT_COUNTER, Name: "bites"}, &expr.Verdict{Kind: expr.VerdictDrop}
	if how.Loss > 0 {
		rule(impaired, &expr.Numgen{Register: 1, Modulus: 100, Type: unix.NFT_NG_RANDOM},
			&expr.Byteorder{SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 4, Size: 4},
			&expr.Cmp{Op: expr.CmpOpLt, Register: 1, Data: binary.BigEndian.AppendUint32(nil, uint32(how.Loss))}, bite, drop)
	}
	if n.release != nil { // the target of iptables, which more kernels have than nft's own
		info := xt.Unknown(binary.NativeEndian.AppendUint16(nil, uint16(slot)))
		rule(impaired, bite, &expr.Target{Name: "NFQUEUE", Info: &info})
	}
	from := []expr.Any{&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: 12, Len: 4},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: link.From.Address.AsSlice()}}
	jump := &expr.Verdict{Kind: expr.VerdictJump, Chain: impaired.Name}
	if link.Port == 0 {
		rule(input, append(from, jump)...)
		return nft.Flush()
	}
	for _, offset := range [...]uint32{0, 2} { // of the source port and of the destination port
		rule(input, slices.Concat(from, []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{unix.IPPROTO_TCP}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binary.BigEndian.AppendUint16(nil, uint16(link.Port))}, jump})...)
	}
	return nft.Flush()
}

// hold opens the queue of the slot's number, and accepts each of its packets when its time has come. A packet that comes while
// 65,536 are held is not delayed.
func (f *filter) hold(delay, jitter time.Duration) error {
	queue, err := nfqueue.Open(&nfqueue.Config{NfQueue: uint16(f.slot), MaxQueueLen: 1 << 16, Copymode: nfqueue.NfQnlCopyMeta,
		Flags: nfqueue.NfQaCfgFlagGSO | nfqueue.NfQaCfgFlagFailOpen, AfFamily: unix.AF_INET})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	var broken error // why nobody reads the queue any more
	f.release = func() error {
		err := queue.SetVerdictBatch(math.MaxInt32, nfqueue.NfAccept) // all packets: their numbers begin at 1 with the queue
		stop()
		return errors.Join(err, queue.Close(), broken)
	}
	hold := func(packet nfqueue.Attribute) int {
		time.AfterFunc(delay+rand.N(jitter+1), func() { _ = queue.SetVerdict(*packet.PacketID, nfqueue.NfAccept) }) // fails after a release
		return 0
	}
	err = errors.Join(queue.SetOption(netlink.NoENOBUFS, true), queue.Con.SetReadBuffer(4<<20), queue.RegisterWithErrorFunc(ctx, hold, func(err error) int {
		if errors.Is(err, unix.ENOENT) { // no packet was held
			return 0
		}
		if ctx.Err() == nil {
			broken = err
		}
		return 1
	}))
	if err != nil {
		err = errors.Join(err, f.release())
	}
	return err
}
