package ucma

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// layouts pairs each structure with its C counterpart and offsets of its fields. A "-"
// stands for a field that C has not by a name, or that is several there.
var layouts = []struct {
	v      any
	c      string
	fields string
}{
	{createIDCmd{}, "rdma_ucm_create_id", "uid response ps qp_type -"},
	{idResp{}, "rdma_ucm_create_id_resp", "id"},
	{idCmd{}, "rdma_ucm_destroy_id", "response id reserved"},
	{idCmd{}, "rdma_ucm_query", "response id option"},
	{idCmd{}, "rdma_ucm_init_qp_attr", "response id qp_state"},
	{idCmd{}, "rdma_ucm_migrate_id", "response id fd"},
	{eventsResp{}, "rdma_ucm_destroy_id_resp", "events_reported"},
	{eventsResp{}, "rdma_ucm_migrate_resp", "events_reported"},
	{bindIPCmd{}, "rdma_ucm_bind_ip", "response addr id"},
	{bindCmd{}, "rdma_ucm_bind", "id addr_size reserved addr"},
	{resolveIPCmd{}, "rdma_ucm_resolve_ip", "src_addr dst_addr id timeout_ms"},
	{resolveAddrCmd{}, "rdma_ucm_resolve_addr", "id timeout_ms src_size dst_size reserved src_addr dst_addr"},
	{idValueCmd{}, "rdma_ucm_resolve_route", "id timeout_ms"},
	{idValueCmd{}, "rdma_ucm_listen", "id backlog"},
	{idValueCmd{}, "rdma_ucm_notify", "id event"},
	{connParam{}, "rdma_ucm_conn_param", "qp_num qkey private_data private_data_len srq responder_resources initiator_depth flow_control retry_count rnr_retry_count valid"},
	{udParam{}, "rdma_ucm_ud_param", "qp_num qkey ah_attr private_data private_data_len reserved"},
	{ece{}, "rdma_ucm_ece", "vendor_id attr_mod"},
	{connectCmd{}, "rdma_ucm_connect", "conn_param id reserved ece"},
	{acceptCmd{}, "rdma_ucm_accept", "uid conn_param id reserved ece"},
	{rejectCmd{}, "rdma_ucm_reject", "id private_data_len reason reserved private_data"},
	{disconnectCmd{}, "rdma_ucm_disconnect", "id"},
	{getEventCmd{}, "rdma_ucm_get_event", "response"},
	{setOptionCmd{}, "rdma_ucm_set_option", "optval id level optname optlen"},
	{joinIPCmd{}, "rdma_ucm_join_ip_mcast", "response uid addr id"},
	{joinCmd{}, "rdma_ucm_join_mcast", "response uid id addr_size join_flags addr"},
	{ahAttr{}, "ib_uverbs_ah_attr", "- - - - - - dlid sl src_path_bits static_rate is_global port_num reserved"},
	{qpAttrResp{}, "ib_uverbs_qp_attr", "qp_attr_mask qp_state cur_qp_state path_mtu path_mig_state qkey rq_psn sq_psn dest_qp_num qp_access_flags ah_attr alt_ah_attr max_send_wr pkey_index alt_pkey_index en_sqd_async_notify sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout reserved"},
	{userPath{}, "ib_user_path_rec", "dgid sgid dlid slid raw_traffic flow_label reversible mtu pkey hop_limit traffic_class numb_path sl mtu_selector rate_selector rate packet_life_time_selector packet_life_time preference"},
	{queryRouteResp{}, "rdma_ucm_query_route_resp", "node_guid ib_route src_addr dst_addr num_paths port_num reserved ibdev_index reserved1"},
	{queryAddrResp{}, "rdma_ucm_query_addr_resp", "node_guid port_num reserved pkey src_size dst_size src_addr dst_addr ibdev_index reserved1"},
	{pathData{}, "ib_path_rec_data", "flags reserved path_rec"},
}

var constants = []struct {
	v int
	c string
}{
	{HeaderBytes, "sizeof(struct rdma_ucm_cmd_hdr)"}, {eventBytes, "sizeof(struct rdma_ucm_event_resp)"},
	{8, "offsetof(struct rdma_ucm_event_resp, id)"}, {12, "offsetof(struct rdma_ucm_event_resp, event)"}, {16, "offsetof(struct rdma_ucm_event_resp, status)"},
	{eventParamOff, "offsetof(struct rdma_ucm_event_resp, param)"}, {eventECEOff, "offsetof(struct rdma_ucm_event_resp, ece)"},
	{eventMinBytes, "offsetof(struct rdma_ucm_event_resp, reserved)"}, {queryRouteMinBytes, "offsetof(struct rdma_ucm_query_route_resp, ibdev_index)"},
	{queryAddrMinBytes, "offsetof(struct rdma_ucm_query_addr_resp, ibdev_index)"}, {pathDataBytes, "sizeof(struct ib_path_rec_data)"},
	{cmdCreateID, "RDMA_USER_CM_CMD_CREATE_ID"}, {cmdResolveRoute, "RDMA_USER_CM_CMD_RESOLVE_ROUTE"}, {cmdAccept, "RDMA_USER_CM_CMD_ACCEPT"},
	{cmdGetEvent, "RDMA_USER_CM_CMD_GET_EVENT"}, {cmdSetOption, "RDMA_USER_CM_CMD_SET_OPTION"}, {cmdJoinMcast, "RDMA_USER_CM_CMD_JOIN_MCAST"},
	{cmdMigrateID, "RDMA_USER_CM_CMD_MIGRATE_ID"}, {cmdQuery, "RDMA_USER_CM_CMD_QUERY"}, {cmdResolveAddr, "RDMA_USER_CM_CMD_RESOLVE_ADDR"},
	{queryAddr, "RDMA_USER_CM_QUERY_ADDR"}, {queryPath, "RDMA_USER_CM_QUERY_PATH"}, {queryGID, "RDMA_USER_CM_QUERY_GID"},
	{levelID, "RDMA_OPTION_ID"}, {levelIB, "RDMA_OPTION_IB"}, {optTOS, "RDMA_OPTION_ID_TOS"}, {optReuseAddr, "RDMA_OPTION_ID_REUSEADDR"},
	{optAFOnly, "RDMA_OPTION_ID_AFONLY"}, {optAckTimeout, "RDMA_OPTION_ID_ACK_TIMEOUT"}, {optIBPath, "RDMA_OPTION_IB_PATH"},
	{joinFullMember, "RDMA_MC_JOIN_FLAG_FULLMEMBER"}, {joinSendOnly, "RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER"},
	{pathFlags, "IB_PATH_GMP | IB_PATH_PRIMARY | IB_PATH_OUTBOUND | IB_PATH_INBOUND_REVERSE"},
}

// TestLayout compares the structures with those of the installed headers, as the C
// compiler lays them out.
//
// req: CM-FILE-01
func TestLayout(t *testing.T) {
	var src strings.Builder
	src.WriteString("#include <stdio.h>\n#include <stddef.h>\n#include <rdma/ib_user_sa.h>\n#include <rdma/rdma_user_cm.h>\nint main(void) {\n")
	var want []int
	var names []string
	add := func(v int, expr string) {
		want, names = append(want, v), append(names, expr)
		fmt.Fprintf(&src, "printf(\"%%zu\\n\", (size_t)(%s));\n", expr)
	}
	for _, l := range layouts {
		typ := reflect.TypeOf(l.v)
		add(binary.Size(l.v), "sizeof(struct "+l.c+")")
		require.Equal(t, int(typ.Size()), binary.Size(l.v), "%s has padding", l.c)
		fields := strings.Fields(l.fields)
		require.Len(t, fields, typ.NumField(), l.c)
		for i, f := range fields {
			if f != "-" {
				add(int(typ.Field(i).Offset), "offsetof(struct "+l.c+", "+f+")")
			}
		}
	}
	for _, c := range constants {
		add(c.v, c.c)
	}
	src.WriteString("return 0; }\n")
	dir := t.TempDir()
	file, exe := filepath.Join(dir, "layout.c"), filepath.Join(dir, "layout")
	require.NoError(t, os.WriteFile(file, []byte(src.String()), 0o600))
	if out, err := exec.Command("cc", "-o", exe, file).CombinedOutput(); err != nil {
		if os.Getenv("CI") != "true" {
			t.Skipf("missing tool: a C compiler with the headers of the kernel: %v\n%s", err, out)
		}
		t.Fatalf("cc: %v\n%s", err, out)
	}
	out, err := exec.Command(exe).Output()
	require.NoError(t, err)
	got := strings.Fields(string(out))
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, strconv.Itoa(want[i]), got[i], names[i])
	}
	t.Logf("%d sizes and offsets compared", len(want))
}
