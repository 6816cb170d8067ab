package rpma

import (
	"encoding/binary"
	"errors"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// Peer (struct rpma_peer) is a device with a protection domain, in which regions and
// connections live.
type Peer struct {
	dev *verbs.Device
	pd  *verbs.PD
}

// NewPeer (rpma_peer_new) makes a peer of a device: ErrInval for nil, ErrNoMem or
// ErrProvider if there is no protection domain to be had.
func NewPeer(dev *verbs.Device) (*Peer, error) {
	const op = "peer_new"
	if dev == nil {
		return nil, inval(op, "no device")
	}
	pd, err := dev.AllocPD()
	switch {
	case errors.Is(err, ib.ENOMEM):
		return nil, fail(op, ErrNoMem, err)
	case err != nil:
		return nil, provider(op, err)
	}
	return &Peer{dev, pd}, nil
}

// Delete (rpma_peer_delete) removes the peer: ErrProvider while it has regions or
// connections.
func (p *Peer) Delete() error { return provider("peer_delete", p.pd.Dealloc()) }

// Usage (RPMA_MR_USAGE_*) says what a region is for.
type Usage uint8

const (
	UsageReadSrc         Usage = 1 << iota // the peer reads it
	UsageReadDst                           // Read puts what it read here
	UsageWriteSrc                          // Write takes it from here
	UsageWriteDst                          // the peer writes it
	UsageFlushVisibility                   // the peer flushes it for others to see
	UsageFlushPersistent                   // the peer flushes it for good
	UsageSend
	UsageRecv
)

// access is what the region is registered with. The device has no FLUSH of its own; a
// flush is a READ.
func (u Usage) access() (a ib.Access) {
	for _, x := range []struct {
		u Usage
		a ib.Access
	}{
		{UsageReadSrc, ib.AccessRemoteRead}, {UsageReadDst, ib.AccessLocalWrite}, {UsageWriteSrc, ib.AccessLocalWrite},
		{UsageWriteDst, ib.AccessRemoteWrite | ib.AccessLocalWrite}, {UsageFlushVisibility, ib.AccessRemoteRead},
		{UsageFlushPersistent, ib.AccessRemoteRead}, {UsageRecv, ib.AccessLocalWrite},
	} {
		if u&x.u != 0 {
			a |= x.a
		}
	}
	return a
}

// MRLocal (struct rpma_mr_local) is a registered region of this side.
type MRLocal struct {
	mr    *verbs.MR
	usage Usage
}

// RegMR (rpma_mr_reg) registers memory: ErrInval without memory or usage.
func (p *Peer) RegMR(buf []byte, usage Usage) (*MRLocal, error) {
	const op = "mr_reg"
	if len(buf) == 0 || usage == 0 {
		return nil, inval(op, "no memory, or no usage")
	}
	mr, err := p.pd.RegMR(buf, usage.access())
	if err != nil {
		return nil, provider(op, err)
	}
	return &MRLocal{mr, usage}, nil
}

// Dereg (rpma_mr_dereg) ends the registration.
func (m *MRLocal) Dereg() error { return provider("mr_dereg", m.mr.Dereg()) }

// Bytes (rpma_mr_get_ptr, rpma_mr_get_size) returns the memory.
func (m *MRLocal) Bytes() []byte { return m.mr.Bytes() }

// DescriptorBytes (rpma_mr_get_descriptor_size) is the size of a region's descriptor:
// address, size, key and usage.
const DescriptorBytes = 8 + 8 + 4 + 1

// Descriptor (rpma_mr_get_descriptor) returns what a peer needs to use the region. It is
// for the program to send; its numbers are little-endian.
func (m *MRLocal) Descriptor() []byte {
	b := make([]byte, 0, DescriptorBytes)
	b = binary.LittleEndian.AppendUint64(b, m.mr.Addr(0))
	b = binary.LittleEndian.AppendUint64(b, uint64(len(m.mr.Bytes())))
	b = binary.LittleEndian.AppendUint32(b, uint32(m.mr.RKey()))
	return append(b, byte(m.usage))
}

// MRRemote (struct rpma_mr_remote) is a region of the other side.
type MRRemote struct {
	addr, size uint64
	rkey       ib.RKey
	usage      Usage
}

// RemoteFromDescriptor (rpma_mr_remote_from_descriptor) makes a region of what the peer
// has sent. What is behind the descriptor is ignored. ErrInval if it is too short or has
// no usage. (C also needs the size to be told; a slice has one.)
func RemoteFromDescriptor(b []byte) (*MRRemote, error) {
	const op = "mr_remote_from_descriptor"
	if len(b) < DescriptorBytes || b[20] == 0 {
		return nil, inval(op, "the descriptor is too short, or has no usage")
	}
	return &MRRemote{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), ib.RKey(binary.LittleEndian.Uint32(b[16:])), Usage(b[20])}, nil
}

// Size (rpma_mr_remote_get_size) returns the region's size in bytes.
func (m *MRRemote) Size() uint64 { return m.size }

// FlushTypes (rpma_mr_remote_get_flush_type) returns which flushes the region takes.
func (m *MRRemote) FlushTypes() Usage { return m.usage & (UsageFlushVisibility | UsageFlushPersistent) }

// PeerCfg (struct rpma_peer_cfg) is what a program tells the other side about its node.
type PeerCfg struct {
	// DirectWriteToPmem says that writes reach persistent memory without the help of a
	// processor.
	DirectWriteToPmem bool
}

// Descriptor (rpma_peer_cfg_get_descriptor) returns what to send to the other side.
func (c PeerCfg) Descriptor() []byte {
	if c.DirectWriteToPmem {
		return []byte{1}
	}
	return []byte{0}
}

// PeerCfgFromDescriptor (rpma_peer_cfg_from_descriptor) reads what the other side has
// sent: ErrInval if it is empty.
func PeerCfgFromDescriptor(b []byte) (PeerCfg, error) {
	if len(b) < 1 {
		return PeerCfg{}, inval("peer_cfg_from_descriptor", "the descriptor is empty")
	}
	return PeerCfg{b[0] != 0}, nil
}
