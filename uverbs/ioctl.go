package uverbs

import (
	"slices"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
)

// Errors of the ioctl interface that are not among those of verbs.
const (
	enotty          ib.Errno = 25
	enodata         ib.Errno = 61
	eprotonosupport ib.Errno = 93
)

// attrKind is what an attribute of a method is.
type attrKind uint8

const (
	inData    attrKind = iota // bytes for us (PTR_IN)
	inConst                   // a number of 8 bytes (CONST_IN)
	inFlags                   // bits, 4 or 8 bytes (FLAGS_IN)
	outData                   // room for bytes from us (PTR_OUT)
	inHandle                  // an object that exists (IDR)
	newHandle                 // where the handle of a new object goes
	inFD                      // a descriptor of the program (FD)
	newFD                     // where a new descriptor goes
)

// attrSpec is one attribute of a method, with the lengths that the kernel lets pass.
type attrSpec struct {
	id       uint16
	kind     attrKind
	min      int // least bytes of inData and outData
	max      int // most bytes; 0: as min
	optional bool
}

// ioctlMethod is a method of an object. uhw says that the driver adds to it.
type ioctlMethod struct {
	attrs []attrSpec
	uhw   bool
	run   func(*ioctlCall) error
}

// uhwSpecs are the attributes for the driver, of any length.
var uhwSpecs = []attrSpec{
	{id: attrUHWIn, kind: inData, max: anyLen, optional: true},
	{id: attrUHWOut, kind: outData, max: anyLen, optional: true},
}

const anyLen = 1<<16 - 1

// methodKey finds a method.
func methodKey(object, method uint16) uint32 { return uint32(object)<<16 | uint32(method) }

// ioctlCall is one ioctl on its way.
type ioctlCall struct {
	call
	vals []attrVal
}

// attrVal is an attribute that the caller gave.
type attrVal struct {
	id    uint16
	len   int
	flags uint16
	at    uint64 // its own address
	data  uint64 // value or address
	in    []byte // of inData: the bytes
}

// Ioctl carries out an ioctl() on the device file (kernel: ib_uverbs_ioctl). buf is the
// structure at arg in the caller's memory with its attributes, as long as its own
// length field says; it is not kept. The answer ENOTTY tells libibverbs that there is
// no ioctl interface: it uses write() from then on. EPROTONOSUPPORT says that there is
// no such method, or none with so many mandatory attributes: it falls back for that
// method only.
//
// What the call returns to the program is in Reply.Out and Reply.Writes, except for
// lists, which go to the caller's memory at once.
func (c *Context) Ioctl(caller *Caller, request uint32, arg uint64, buf []byte, passed Passed) Reply {
	if request != IoctlRequest || c.dev.cfg.NoIoctl {
		return Reply{Errno: enotty}
	}
	if caller == nil {
		caller = &Caller{}
	}
	var rep Reply
	k := &ioctlCall{call: call{c: c, caller: caller, passed: passed, rep: &rep}}
	m, command, err := k.parse(arg, buf)
	if err != nil {
		return Reply{Errno: ib.ErrnoOf(err)}
	}
	k.own(command, func() error { return k.run(m) })
	if rep.Errno != 0 {
		return Reply{Errno: rep.Errno}
	}
	return rep
}

func ioctlErr(errno ib.Errno, reason string) error {
	return ib.NewVerbError(errno, "ioctl", "", reason)
}

// run carries out a method whose attributes are in order.
func (k *ioctlCall) run(m *ioctlMethod) error {
	if k.c.closed {
		return ioctlErr(ib.EINVAL, "the context does not exist")
	}
	if err := m.run(k); err != nil {
		return err
	}
	if v := k.val(attrUHWOut); v != nil && m.uhw {
		k.valid(v)
	}
	return nil
}

// needContext refuses what may not come before GET_CONTEXT.
func (k *ioctlCall) needContext() error {
	if !k.c.ready {
		return ioctlErr(ib.EINVAL, "the context does not exist")
	}
	return nil
}

// parse (kernel: ib_uverbs_cmd_verbs) checks header and attributes and reads what the
// attributes point to. command is the command of an INVOKE_WRITE.
func (k *ioctlCall) parse(arg uint64, buf []byte) (m *ioctlMethod, command uint32, err error) {
	if len(buf) < ioctlHdrBytes {
		return nil, 0, ioctlErr(ib.EINVAL, "shorter than a header")
	}
	var h ioctlHdr
	h.decode(buf)
	switch {
	case h.Length > ioctlMaxBytes || int(h.Length) != len(buf) || int(h.Length) != ioctlHdrBytes+int(h.NumAttrs)*ioctlAttrBytes:
		return nil, 0, ioctlErr(ib.EINVAL, "length is not that of the attributes")
	case h.Reserved1 != 0 || h.Reserved2 != 0:
		return nil, 0, ioctlErr(eprotonosupport, "a reserved field is not 0")
	case h.DriverID != k.c.dev.abi.driverID():
		return nil, 0, ioctlErr(ib.EINVAL, "driver_id is another driver's")
	}
	m = ioctlMethods[methodKey(h.ObjectID, h.MethodID)]
	if m == nil {
		return nil, 0, ioctlErr(eprotonosupport, "the device has no such method")
	}
	for off := ioctlHdrBytes; off < len(buf); off += ioctlAttrBytes {
		var a ioctlAttr
		a.decode(buf[off:])
		if err := k.take(m, &a, arg+uint64(off)); err != nil {
			return nil, 0, err
		}
	}
	for i := range m.attrs {
		if s := &m.attrs[i]; !s.optional && k.val(s.id) == nil {
			return nil, 0, ioctlErr(ib.EINVAL, "a mandatory attribute is missing")
		}
	}
	if m.run == nil {
		return nil, 0, ioctlErr(ib.EOPNOTSUPP, "the device cannot do this")
	}
	if h.ObjectID == objDevice && h.MethodID == methodInvokeWrite {
		command = uint32(k.u64(attrWriteCmd))
	}
	return m, command, nil
}

func (h *ioctlHdr) decode(b []byte) {
	*h = ioctlHdr{
		Length: native.Uint16(b), ObjectID: native.Uint16(b[2:]), MethodID: native.Uint16(b[4:]), NumAttrs: native.Uint16(b[6:]),
		Reserved1: native.Uint64(b[8:]), DriverID: native.Uint32(b[16:]), Reserved2: native.Uint32(b[20:]),
	}
}

func (a *ioctlAttr) decode(b []byte) {
	*a = ioctlAttr{
		AttrID: native.Uint16(b), Len: native.Uint16(b[2:]), Flags: native.Uint16(b[4:]), Reserved: native.Uint16(b[6:]),
		Data: native.Uint64(b[8:]),
	}
}

// spec finds an attribute of a method.
func (m *ioctlMethod) spec(id uint16) *attrSpec {
	for i := range m.attrs {
		if m.attrs[i].id == id {
			return &m.attrs[i]
		}
	}
	if m.uhw && (id == attrUHWIn || id == attrUHWOut) {
		return &uhwSpecs[id-attrUHWIn]
	}
	return nil
}

// take (kernel: uverbs_set_attr, uverbs_process_attr) checks one attribute and keeps it.
func (k *ioctlCall) take(m *ioctlMethod, a *ioctlAttr, at uint64) error {
	s := m.spec(a.AttrID)
	switch {
	case s == nil && a.Flags&attrMandatory != 0:
		return ioctlErr(eprotonosupport, "the method has no such attribute")
	case s == nil:
		return nil
	case k.val(a.AttrID) != nil:
		return ioctlErr(ib.EINVAL, "an attribute comes twice")
	case a.Reserved != 0:
		return ioctlErr(ib.EINVAL, "a reserved field is not 0")
	}
	v := attrVal{id: a.AttrID, len: int(a.Len), flags: a.Flags, at: at, data: a.Data}
	least, most := s.min, max(s.min, s.max)
	switch s.kind {
	case inConst:
		least, most = 8, 8
	case inFlags:
		least, most = 4, 8
	case inHandle, newHandle, inFD, newFD:
		least, most = 0, 0
	}
	switch {
	case v.len < least || v.len > most:
		return ioctlErr(ib.EINVAL, "an attribute has the wrong length")
	case s.kind == inFlags && v.len != 4 && v.len != 8:
		return ioctlErr(ib.EINVAL, "flags are neither 4 nor 8 bytes")
	}
	if s.kind == inData || s.kind == inConst || s.kind == inFlags {
		var err error
		if v.in, err = k.fetch(&v); err != nil {
			return err
		}
	}
	k.vals = append(k.vals, v)
	return nil
}

// fetch returns the bytes of an attribute: its own if they fit there.
func (k *ioctlCall) fetch(v *attrVal) ([]byte, error) {
	if v.len <= 8 {
		return native.AppendUint64(nil, v.data)[:v.len], nil
	}
	b := make([]byte, v.len)
	if k.caller.Mem == nil {
		return nil, ioctlErr(ib.EFAULT, "the caller has no memory")
	}
	if n, err := k.caller.Mem.ReadV([]mr.Op{{Addr: v.data, Buf: b}}); err != nil || n < 1 {
		return nil, ioctlErr(ib.EFAULT, "an attribute cannot be read")
	}
	return b, nil
}

// val returns an attribute, nil if the caller did not give it.
func (k *ioctlCall) val(id uint16) *attrVal {
	for i := range k.vals {
		if k.vals[i].id == id {
			return &k.vals[i]
		}
	}
	return nil
}

// u64 returns the number in an attribute of up to 8 bytes, 0 without it.
func (k *ioctlCall) u64(id uint16) uint64 {
	v := k.val(id)
	if v == nil {
		return 0
	}
	var b [8]byte
	copy(b[:], v.in)
	if v.len == 4 {
		return uint64(native.Uint32(b[:]))
	}
	return native.Uint64(b[:])
}

func (k *ioctlCall) u32(id uint16) uint32 { return uint32(k.u64(id)) }

// constant returns the value of an inConst attribute, which must not exceed most.
func (k *ioctlCall) constant(id uint16, most uint64) (uint64, error) {
	n := k.u64(id)
	if n > most {
		return 0, ioctlErr(ib.EINVAL, "a number is out of range")
	}
	return n, nil
}

// flags returns the bits of an inFlags attribute, which must be among the known ones.
func (k *ioctlCall) flags(id uint16, known uint64) (uint32, error) {
	f := k.u64(id)
	if f&^known != 0 {
		return 0, ioctlErr(ib.EINVAL, "flags have unknown bits")
	}
	return uint32(f), nil
}

// objectOf finds the object that an attribute names; nil without error if the caller
// did not give the attribute.
func objectOf[T any](k *ioctlCall, id uint16) (*T, error) {
	h, err := k.handleOf(id)
	if h == 0 || err != nil {
		return nil, err
	}
	return take[T](k.c, "ioctl", h)
}

// handleOf returns the handle in an attribute, 0 without it.
func (k *ioctlCall) handleOf(id uint16) (uint32, error) {
	v := k.val(id)
	switch {
	case v == nil:
		return 0, nil
	case int64(v.data) < 0:
		return 0, ioctlErr(ib.EINVAL, "a handle is negative")
	case v.data == 0 || v.data > maxHandle:
		return 0, ioctlErr(ib.ENOENT, "no object has this handle")
	}
	return uint32(v.data), nil
}

// fdOf returns the descriptor in an attribute, -1 without it.
func (k *ioctlCall) fdOf(id uint16) (int32, error) {
	v := k.val(id)
	if v == nil {
		return -1, nil
	}
	if fd := int64(v.data); fd != int64(int32(fd)) || fd < 0 {
		return -1, ioctlErr(ebadf, "it is no descriptor")
	}
	return int32(v.data), nil
}

// events finds the file of asynchronous events that a new object names.
func (k *ioctlCall) events(id uint16) error {
	fd, err := k.fdOf(id)
	if fd < 0 || err != nil {
		return err
	}
	if k.passed != nil {
		if ino, ok := k.passed(fd); ok {
			i := slices.IndexFunc(k.c.asyncFiles(), func(ch *channel) bool { return ch.ino == ino })
			if i >= 0 {
				k.eventsTo = k.c.asyncFiles()[i]
				return nil
			}
		}
	}
	return ioctlErr(ebadf, "event_fd is not a file of asynchronous events of this context")
}

// store gives bytes to the program.
func (k *ioctlCall) store(addr uint64, b []byte) {
	k.rep.Writes = append(k.rep.Writes, Write{Addr: addr, Data: b})
}

// valid marks an attribute as one that was written to.
func (k *ioctlCall) valid(v *attrVal) {
	k.store(v.at+attrFlagsOff, native.AppendUint16(nil, v.flags|attrValidOutput))
}

// out answers an attribute, if the caller gave it: as much as there is room for, and
// zeroes where there is more.
func (k *ioctlCall) out(id uint16, value any) {
	v := k.val(id)
	if v == nil {
		return
	}
	b := encode(value)
	if len(b) < v.len {
		b = append(b, make([]byte, v.len-len(b))...)
	}
	k.store(v.data, b[:v.len])
	k.valid(v)
}

// outList answers an attribute with bytes that may be many: they go to the program at
// once, without a detour over the answer.
func (k *ioctlCall) outList(id uint16, b []byte) error {
	v := k.val(id)
	if v == nil {
		return nil
	}
	if b = b[:min(len(b), v.len)]; len(b) > 0 {
		if k.caller.Mem == nil {
			return ioctlErr(ib.EFAULT, "the caller has no memory")
		}
		if n, err := k.caller.Mem.WriteV([]mr.Op{{Addr: v.data, Buf: b}}); err != nil || n < 1 {
			return ioctlErr(ib.EFAULT, "a list cannot be written")
		}
	}
	k.valid(v)
	return nil
}

// created answers the attribute of a new object.
func (k *ioctlCall) created(id uint16, handle uint32) {
	k.store(k.val(id).at+attrDataOff, native.AppendUint64(nil, uint64(handle)))
}

// driver prepares the driver's part of the call, and outDriver answers it.
func (k *ioctlCall) driver() {
	if v := k.val(attrUHWIn); v != nil {
		k.drvIn = v.in
	}
	if v := k.val(attrUHWOut); v != nil {
		k.outDrv = v.len
	}
}

func (k *ioctlCall) outDriver(b []byte) {
	if v := k.val(attrUHWOut); v != nil && len(b) > 0 {
		k.store(v.data, b[:min(len(b), v.len)])
	}
}
