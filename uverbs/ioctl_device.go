package uverbs

import (
	"bytes"
	"slices"

	"github.com/rvtsim/rvtsim/ib"
)

// ioctlMethods are the methods of all objects (kernel: the definitions in
// uverbs_std_types_*.c). A method without a row is one that libibverbs must not count
// on: EPROTONOSUPPORT. Flows, counters, work queues, tag matching and the encryption of
// packets have none, as with the drivers that this device stands for. Filled by init
// functions, because methods refer to the table.
var ioctlMethods map[uint32]*ioctlMethod

func init() {
	ioctlMethods = map[uint32]*ioctlMethod{
		methodKey(objDevice, methodInvokeWrite): {attrs: []attrSpec{
			{id: attrCoreIn, kind: inData, min: 4, max: anyLen, optional: true},
			{id: attrCoreOut, kind: outData, max: anyLen, optional: true},
			{id: attrWriteCmd, kind: inConst},
		}, uhw: true, run: invokeWrite},
		methodKey(objDevice, methodGetContext):   {attrs: contextAttrs, uhw: true, run: getContextIoctl},
		methodKey(objDevice, methodQueryContext): {attrs: contextAttrs, uhw: true, run: queryContext},
		methodKey(objDevice, methodQueryPort): {attrs: []attrSpec{
			{id: attrPortNum, kind: inConst},
			{id: attrPortResp, kind: outData, min: 48, max: anyLen},
		}, run: queryPortIoctl},
		methodKey(objDevice, methodInfoHandles): {attrs: []attrSpec{
			{id: attrInfoObject, kind: inConst},
			{id: attrInfoTotal, kind: outData, min: 4, optional: true},
			{id: attrInfoList, kind: outData, min: 4, max: anyLen, optional: true},
		}, run: infoHandles},
		methodKey(objDevice, methodGIDTable): {attrs: []attrSpec{
			{id: attrTableEntrySize, kind: inConst},
			{id: attrTableFlags, kind: inFlags, optional: true},
			{id: attrTableEntries, kind: outData, max: anyLen},
			{id: attrTableNum, kind: outData, min: 8},
		}, run: gidTable},
		methodKey(objDevice, methodGIDEntry): {attrs: []attrSpec{
			{id: attrEntryPort, kind: inConst},
			{id: attrEntryIndex, kind: inConst},
			{id: attrEntryFlags, kind: inFlags},
			{id: attrEntryResp, kind: outData, min: 32, max: anyLen},
		}, run: gidEntryIoctl},
		methodKey(objAsyncEvent, methodAsyncAlloc): {attrs: []attrSpec{
			{id: attrAsyncFD, kind: newFD},
		}, run: asyncEventAlloc},
	}
	addObjectMethods(ioctlMethods)
}

var contextAttrs = []attrSpec{
	{id: attrNumCompVectors, kind: outData, min: 4, optional: true},
	{id: attrCoreSupport, kind: outData, min: 8, optional: true},
}

// invokeWrite (INVOKE_WRITE) carries a command of the write() interface.
func invokeWrite(k *ioctlCall) error {
	n := k.u64(attrWriteCmd)
	if n&^(cmdMask|cmdExtended) != 0 {
		return ioctlErr(ib.EINVAL, "the command number has unknown bits")
	}
	table := methods
	if k.ex = n&cmdExtended != 0; k.ex {
		table = exMethods
	}
	m, ok := table[uint32(n&cmdMask)]
	if !ok {
		return ioctlErr(ib.EOPNOTSUPP, "the device has no such command")
	}
	if v := k.val(attrCoreIn); v != nil {
		k.in = v.in
	}
	core := k.val(attrCoreOut)
	if core != nil {
		k.outCore = core.len
	}
	if len(k.in) < m.req || k.outCore < m.resp {
		return ioctlErr(ib.ENOSPC, "the command or the room for its answer is too short")
	}
	k.driver()
	if err := k.dispatch(&m, uint32(n)); err != nil {
		return err
	}
	out := k.rep.Out
	if len(out) > k.outCore {
		k.outDriver(out[k.outCore:])
		out = out[:k.outCore]
	}
	k.rep.Out = nil
	if core != nil && len(out) > 0 {
		k.rep.Out, k.rep.OutAddr = out, core.data
		k.valid(core)
	}
	return nil
}

// getContextIoctl (GET_CONTEXT) makes the context without a file of asynchronous
// events: the program asks for that by itself.
func getContextIoctl(k *ioctlCall) error {
	if k.c.ready {
		return ib.NewVerbError(ib.EINVAL, "get_context", "", "the context exists already")
	}
	k.c.ready = true
	k.outContext()
	return nil
}

// queryContext (QUERY_CONTEXT) is for a program that got the descriptor of a context
// which exists already (ibv_import_device).
func queryContext(k *ioctlCall) error {
	if err := k.needContext(); err != nil {
		return err
	}
	k.outContext()
	return nil
}

func (k *ioctlCall) outContext() {
	k.out(attrNumCompVectors, uint32(k.c.dev.cfg.compVectors()))
	k.out(attrCoreSupport, uint64(supportOptionalMR))
}

// asyncEventAlloc (ASYNC_EVENT_ALLOC).
func asyncEventAlloc(k *ioctlCall) error {
	if err := k.needContext(); err != nil {
		return err
	}
	r, err := k.c.addAsync("async_event_alloc")
	if err != nil {
		return err
	}
	k.rep.Out, k.rep.OutAddr = make([]byte, 8), k.val(attrAsyncFD).at+attrDataOff
	k.pass(r, fdInData)
	return nil
}

// fdInData is where in the 8 bytes of an attribute a descriptor of 4 bytes goes.
var fdInData = bytes.IndexByte(native.AppendUint64(nil, 1), 1) &^ 3

// queryPortIoctl (QUERY_PORT).
func queryPortIoctl(k *ioctlCall) error {
	n, err := k.constant(attrPortNum, 0xff)
	if err != nil {
		return err
	}
	if err := k.needContext(); err != nil {
		return err
	}
	if n != portNum {
		return ib.NewVerbError(ib.EINVAL, "query_port", "", "the device has port 1 only")
	}
	k.out(attrPortResp, queryPortRespEx{Legacy: k.portAttr()})
	return nil
}

// infoHandles (INFO_HANDLES) lists the objects of one kind, by handle.
func infoHandles(k *ioctlCall) error {
	var is func(any) bool
	switch k.u64(attrInfoObject) {
	case objPD:
		is = isA[pdObj]
	case objCQ:
		is = isA[cqObj]
	case objQP:
		is = isA[qpObj]
	case objSRQ:
		is = isA[srqObj]
	case objAH:
		is = isA[ahObj]
	case objMR:
		is = isA[mrObj]
	case objMW:
		is = isA[mwObj]
	case objDM:
		is = isA[dmObj]
	case objDevice, objCompChannel, objAsyncEvent:
		is = func(any) bool { return false }
	default:
		return ioctlErr(ib.EINVAL, "there are no objects of this kind")
	}
	list := k.val(attrInfoList)
	if list == nil || list.len%4 != 0 {
		return ioctlErr(ib.EINVAL, "the room is not a number of handles")
	}
	var all []uint32
	for h, o := range k.c.objects {
		if is(o) {
			all = append(all, h)
		}
	}
	slices.Sort(all)
	all = all[:min(len(all), list.len/4)]
	if err := k.outList(attrInfoList, encode(all)); err != nil {
		return err
	}
	k.out(attrInfoTotal, uint32(len(all)))
	return nil
}

func isA[T any](o any) bool {
	_, ok := o.(*T)
	return ok
}

// gid describes an entry of the GID table; false if it is empty.
func (k *ioctlCall) gid(i int) (gidEntry, bool) {
	gids := k.d.GIDs()
	if i >= len(gids) || gids[i].IsZero() {
		return gidEntry{}, false
	}
	return gidEntry{GID: gids[i], GIDIndex: uint32(i), PortNum: portNum, GIDType: gidTypeRoCEv2, NetdevIfindex: k.c.dev.ifindexOf(i)}, true
}

// gidTable (QUERY_GID_TABLE, ibv_query_gid_table) lists the entries that are not empty.
func gidTable(k *ioctlCall) error {
	const verb = "query_gid_table"
	if _, err := k.flags(attrTableFlags, 0); err != nil {
		return err
	}
	if err := k.needContext(); err != nil {
		return err
	}
	size, room := k.u64(attrTableEntrySize), uint64(k.val(attrTableEntries).len)
	if size == 0 || size > room || room%size != 0 {
		return ib.NewVerbError(ib.EINVAL, verb, "", "the room is not a number of entries")
	}
	var list []byte
	n := uint64(0)
	for i := range k.d.GIDs() {
		e, ok := k.gid(i)
		if !ok {
			continue
		}
		if n++; n*size > room {
			return ib.NewVerbError(ib.EINVAL, verb, "", "there are more entries than the program has room for")
		}
		b := make([]byte, size)
		copy(b, encode(e))
		list = append(list, b...)
	}
	if err := k.outList(attrTableEntries, list); err != nil {
		return err
	}
	k.out(attrTableNum, n)
	return nil
}

// gidEntryIoctl (QUERY_GID_ENTRY, ibv_query_gid_ex).
func gidEntryIoctl(k *ioctlCall) error {
	const verb = "query_gid_ex"
	if _, err := k.flags(attrEntryFlags, 0); err != nil {
		return err
	}
	if err := k.needContext(); err != nil {
		return err
	}
	i := k.u64(attrEntryIndex)
	switch {
	case k.u64(attrEntryPort) != portNum:
		return ib.NewVerbError(ib.EINVAL, verb, "", "the device has port 1 only")
	case i >= uint64(k.c.dev.cfg.gidTableLen(len(k.d.GIDs()))):
		return ib.NewVerbError(ib.EINVAL, verb, "", "the GID table is shorter")
	}
	e, ok := k.gid(int(i))
	if !ok {
		return ib.NewVerbError(enodata, verb, "", "the entry is empty")
	}
	k.out(attrEntryResp, e)
	return nil
}
