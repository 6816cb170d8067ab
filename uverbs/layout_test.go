package uverbs

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

// layouts pairs each structure with its C counterpart and the C names of its fields,
// in order. A name may reach into a member.
var layouts = []struct {
	v      any
	c      string
	fields string
}{
	{asyncEventDesc{}, "ib_uverbs_async_event_desc", "element event_type reserved"},
	{compEventDesc{}, "ib_uverbs_comp_event_desc", "cq_handle"},
	{respOnly{}, "ib_uverbs_get_context", "response"},
	{respOnly{}, "ib_uverbs_alloc_pd", "response"},
	{getContextResp{}, "ib_uverbs_get_context_resp", "async_fd num_comp_vectors"},
	{queryDeviceResp{}, "ib_uverbs_query_device_resp", "fw_ver node_guid sys_image_guid max_mr_size page_size_cap vendor_id vendor_part_id hw_ver max_qp max_qp_wr device_cap_flags max_sge max_sge_rd max_cq max_cqe max_mr max_pd max_qp_rd_atom max_ee_rd_atom max_res_rd_atom max_qp_init_rd_atom max_ee_init_rd_atom atomic_cap max_ee max_rdd max_mw max_raw_ipv6_qp max_raw_ethy_qp max_mcast_grp max_mcast_qp_attach max_total_mcast_qp_attach max_ah max_fmr max_map_per_fmr max_srq max_srq_wr max_srq_sge max_pkeys local_ca_ack_delay phys_port_cnt reserved"},
	{exQueryDevice{}, "ib_uverbs_ex_query_device", "comp_mask reserved"},
	{exQueryDeviceResp{}, "ib_uverbs_ex_query_device_resp", "base comp_mask response_length odp_caps timestamp_mask hca_core_clock device_cap_flags_ex rss_caps max_wq_type_rq raw_packet_caps tm_caps cq_moderation_caps max_dm_size xrc_odp_caps reserved"},
	{queryPort{}, "ib_uverbs_query_port", "response port_num reserved"},
	{queryPortResp{}, "ib_uverbs_query_port_resp", "port_cap_flags max_msg_sz bad_pkey_cntr qkey_viol_cntr gid_tbl_len pkey_tbl_len lid sm_lid state max_mtu active_mtu lmc max_vl_num sm_sl subnet_timeout init_type_reply active_width active_speed phys_state link_layer flags reserved"},
	{handleOnly{}, "ib_uverbs_dealloc_pd", "pd_handle"},
	{handleOnly{}, "ib_uverbs_create_ah_resp", "ah_handle"},
	{regMR{}, "ib_uverbs_reg_mr", "response start length hca_va pd_handle access_flags"},
	{regMRResp{}, "ib_uverbs_reg_mr_resp", "mr_handle lkey rkey"},
	{reregMR{}, "ib_uverbs_rereg_mr", "response mr_handle flags start length hca_va pd_handle access_flags"},
	{reregMRResp{}, "ib_uverbs_rereg_mr_resp", "lkey rkey"},
	{allocMW{}, "ib_uverbs_alloc_mw", "response pd_handle mw_type reserved"},
	{allocMWResp{}, "ib_uverbs_alloc_mw_resp", "mw_handle rkey"},
	{createCQ{}, "ib_uverbs_create_cq", "response user_handle cqe comp_vector comp_channel reserved"},
	{createCQResp{}, "ib_uverbs_create_cq_resp", "cq_handle cqe"},
	{exCreateCQ{}, "ib_uverbs_ex_create_cq", "user_handle cqe comp_vector comp_channel comp_mask flags reserved"},
	{exCreateCQResp{}, "ib_uverbs_ex_create_cq_resp", "base comp_mask response_length"},
	{resizeCQ{}, "ib_uverbs_resize_cq", "response cq_handle cqe"},
	{resizeCQResp{}, "ib_uverbs_resize_cq_resp", "cqe reserved"},
	{pollCQ{}, "ib_uverbs_poll_cq", "response cq_handle ne"},
	{pollCQResp{}, "ib_uverbs_poll_cq_resp", "count reserved"},
	{reqNotifyCQ{}, "ib_uverbs_req_notify_cq", "cq_handle solicited_only"},
	{destroyObject{}, "ib_uverbs_destroy_cq", "response cq_handle reserved"},
	{destroyObject{}, "ib_uverbs_destroy_qp", "response qp_handle reserved"},
	{destroyObject{}, "ib_uverbs_query_srq", "response srq_handle reserved"},
	{destroyCQResp{}, "ib_uverbs_destroy_cq_resp", "comp_events_reported async_events_reported"},
	{eventsResp{}, "ib_uverbs_destroy_qp_resp", "events_reported"},
	{globalRoute{}, "ib_uverbs_global_route", "dgid flow_label sgid_index hop_limit traffic_class reserved"},
	{ahAttr{}, "ib_uverbs_ah_attr", "grh dlid sl src_path_bits static_rate is_global port_num reserved"},
	{createAH{}, "ib_uverbs_create_ah", "response user_handle pd_handle reserved attr"},
	{createQP{}, "ib_uverbs_create_qp", "response user_handle"},
	{exCreateQP{}, "ib_uverbs_ex_create_qp", "user_handle comp_mask create_flags rwq_ind_tbl_handle source_qpn"},
	{createQPResp{}, "ib_uverbs_create_qp_resp", "qp_handle qpn max_send_wr reserved"},
	{exCreateQPResp{}, "ib_uverbs_ex_create_qp_resp", "base comp_mask response_length"},
	{qpDest{}, "ib_uverbs_qp_dest", "dgid flow_label dlid reserved sgid_index hop_limit traffic_class sl src_path_bits static_rate is_global port_num"},
	{queryQP{}, "ib_uverbs_query_qp", "response qp_handle attr_mask"},
	{queryQPResp{}, "ib_uverbs_query_qp_resp", "dest alt_dest max_send_wr qkey rq_psn sq_psn dest_qp_num qp_access_flags pkey_index alt_pkey_index qp_state cur_qp_state path_mtu path_mig_state sq_draining max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout sq_sig_all reserved"},
	{modifyQP{}, "ib_uverbs_modify_qp", "dest alt_dest qp_handle attr_mask qkey rq_psn sq_psn dest_qp_num qp_access_flags pkey_index alt_pkey_index qp_state cur_qp_state path_mtu path_mig_state en_sqd_async_notify max_rd_atomic max_dest_rd_atomic min_rnr_timer port_num timeout retry_cnt rnr_retry alt_port_num alt_timeout reserved"},
	{exModifyQP{}, "ib_uverbs_ex_modify_qp", "base rate_limit reserved"},
	{exModifyQPResp{}, "ib_uverbs_ex_modify_qp_resp", "comp_mask response_length"},
	{postWR{}, "ib_uverbs_post_send", "response qp_handle wr_count sge_count wqe_size"},
	{postWR{}, "ib_uverbs_post_srq_recv", "response srq_handle wr_count sge_count wqe_size"},
	{postResp{}, "ib_uverbs_post_send_resp", "bad_wr"},
	{mcastCmd{}, "ib_uverbs_attach_mcast", "gid qp_handle mlid reserved"},
	{createSRQ{}, "ib_uverbs_create_srq", "response user_handle pd_handle max_wr max_sge srq_limit"},
	{createSRQResp{}, "ib_uverbs_create_srq_resp", "srq_handle max_wr max_sge srqn"},
	{modifySRQ{}, "ib_uverbs_modify_srq", "srq_handle attr_mask max_wr srq_limit"},
	{ioctlHdr{}, "ib_uverbs_ioctl_hdr", "length object_id method_id num_attrs reserved1 driver_id reserved2"},
	{ioctlAttr{}, "ib_uverbs_attr", "attr_id len flags attr_data data"},
	{queryPortRespEx{}, "ib_uverbs_query_port_resp_ex", "legacy_resp port_cap_flags2 reserved"},
	{gidEntry{}, "ib_uverbs_gid_entry", "gid gid_index port_num gid_type netdev_ifindex"},
	{uverbsSGE{}, "ib_uverbs_sge", "addr length lkey"},
	{qpCaps{}, "ib_uverbs_qp_cap", "max_send_wr max_recv_wr max_send_sge max_recv_sge max_inline_data"},
	{querySRQResp{}, "ib_uverbs_query_srq_resp", "max_wr max_sge srq_limit reserved"},
}

// constants pairs offsets and sizes that the code has as numbers with C expressions.
var constants = []struct {
	v int
	c string
}{
	{cmdHdrBytes, "sizeof(struct ib_uverbs_cmd_hdr)"}, {exCmdHdrBytes, "sizeof(struct ib_uverbs_ex_cmd_hdr)"},
	{wcBytes, "sizeof(struct ib_uverbs_wc)"}, {sgeBytes, "sizeof(struct rxe_sge)"}, {sgeBytes, "sizeof(struct rvt_wqe_sge)"},
	{sendWRBytes, "sizeof(struct ib_uverbs_send_wr)"}, {recvWRBytes, "sizeof(struct ib_uverbs_recv_wr)"},
	{rxeHeader, "offsetof(struct rxe_queue_buf, data)"}, {rxeElemOff, "offsetof(struct rxe_queue_buf, log2_elem_size)"},
	{rxeMaskOff, "offsetof(struct rxe_queue_buf, index_mask)"}, {SQPostableOffset, "offsetof(struct rxe_queue_buf, pad_1)"},
	{rxeProdOff, "offsetof(struct rxe_queue_buf, producer_index)"}, {rxeConsOff, "offsetof(struct rxe_queue_buf, consumer_index)"},
	{rxeRecvNum, "offsetof(struct rxe_recv_wqe, dma.num_sge)"}, {rxeRecvSGE, "offsetof(struct rxe_recv_wqe, dma.sge)"},
	{rxeSendNum, "offsetof(struct rxe_send_wqe, dma.num_sge)"}, {rxeSendLen, "offsetof(struct rxe_send_wqe, dma.length)"},
	{rxeSendData, "offsetof(struct rxe_send_wqe, dma.sge)"}, {rxeSendData, "offsetof(struct rxe_send_wqe, dma.inline_data)"},
	{sendWRID, "offsetof(struct rxe_send_wqe, wr.wr_id)"}, {sendOpcode, "offsetof(struct rxe_send_wqe, wr.opcode)"},
	{sendFlags, "offsetof(struct rxe_send_wqe, wr.send_flags)"}, {sendImm, "offsetof(struct rxe_send_wqe, wr.ex.imm_data)"},
	{sendAddr, "offsetof(struct rxe_send_wqe, wr.wr.rdma.remote_addr)"}, {sendRKey, "offsetof(struct rxe_send_wqe, wr.wr.rdma.rkey)"},
	{sendAddr, "offsetof(struct rxe_send_wqe, wr.wr.atomic.remote_addr)"}, {sendCompare, "offsetof(struct rxe_send_wqe, wr.wr.atomic.compare_add)"},
	{sendSwap, "offsetof(struct rxe_send_wqe, wr.wr.atomic.swap)"}, {sendAtRKey, "offsetof(struct rxe_send_wqe, wr.wr.atomic.rkey)"},
	{sendQPN, "offsetof(struct rxe_send_wqe, wr.wr.ud.remote_qpn)"}, {sendQKey, "offsetof(struct rxe_send_wqe, wr.wr.ud.remote_qkey)"},
	{sendPKey, "offsetof(struct rxe_send_wqe, wr.wr.ud.pkey_index)"}, {sendAHNum, "offsetof(struct rxe_send_wqe, wr.wr.ud.ah_num)"},
	{sendAV, "offsetof(struct rxe_send_wqe, wr.wr.ud.av)"}, {avPort, "offsetof(struct rxe_av, port_num)"}, {avDGID, "offsetof(struct rxe_av, grh.dgid)"},
	{avFlow, "offsetof(struct rxe_av, grh.flow_label)"}, {avSGID, "offsetof(struct rxe_av, grh.sgid_index)"},
	{avHop, "offsetof(struct rxe_av, grh.hop_limit)"}, {avClass, "offsetof(struct rxe_av, grh.traffic_class)"},
	{sendMWAddr, "offsetof(struct rxe_send_wqe, wr.wr.mw.addr)"}, {sendMWLen, "offsetof(struct rxe_send_wqe, wr.wr.mw.length)"},
	{sendMRLKey, "offsetof(struct rxe_send_wqe, wr.wr.mw.mr_lkey)"}, {sendMWRKey, "offsetof(struct rxe_send_wqe, wr.wr.mw.mw_rkey)"},
	{sendNewRKey, "offsetof(struct rxe_send_wqe, wr.wr.mw.rkey)"}, {sendMWAcc, "offsetof(struct rxe_send_wqe, wr.wr.mw.access)"},
	{rvtEntries, "offsetof(struct rvt_cq_wc, uqueue)"}, {rvtEntries, "offsetof(struct rvt_rwq, wq)"}, {rvtTailOff, "offsetof(struct rvt_rwq, tail)"},
	{rvtRWQENum, "offsetof(struct rvt_rwqe, num_sge)"}, {rvtRWQESGE, "offsetof(struct rvt_rwqe, sg_list)"},
	{16, "sizeof(struct mminfo)"}, {24, "sizeof(struct rxe_create_srq_resp)"}, {8, "sizeof(struct rxe_create_ah_resp)"}, {32, "sizeof(struct rxe_create_qp_resp)"},
	{20, "offsetof(struct ib_uverbs_send_wr, ex.imm_data)"}, {24, "offsetof(struct ib_uverbs_send_wr, wr.ud.ah)"}, {48, "offsetof(struct ib_uverbs_send_wr, wr.atomic.rkey)"},
	{52, "offsetof(struct ib_uverbs_ex_create_qp, create_flags)"}, {cmdDestroySRQ, "IB_USER_VERBS_CMD_DESTROY_SRQ"}, {cmdPostSRQRecv, "IB_USER_VERBS_CMD_POST_SRQ_RECV"},
	{IoctlRequest, "RDMA_VERBS_IOCTL"}, {ioctlHdrBytes, "sizeof(struct ib_uverbs_ioctl_hdr)"}, {ioctlAttrBytes, "sizeof(struct ib_uverbs_attr)"},
	{attrDataOff, "offsetof(struct ib_uverbs_attr, data)"}, {attrFlagsOff, "offsetof(struct ib_uverbs_attr, flags)"},
	{attrMandatory, "UVERBS_ATTR_F_MANDATORY"}, {attrValidOutput, "UVERBS_ATTR_F_VALID_OUTPUT"},
	{objPD, "UVERBS_OBJECT_PD"}, {objCQ, "UVERBS_OBJECT_CQ"}, {objQP, "UVERBS_OBJECT_QP"}, {objSRQ, "UVERBS_OBJECT_SRQ"}, {objAH, "UVERBS_OBJECT_AH"},
	{objMR, "UVERBS_OBJECT_MR"}, {objMW, "UVERBS_OBJECT_MW"}, {objDM, "UVERBS_OBJECT_DM"}, {objAsyncEvent, "UVERBS_OBJECT_ASYNC_EVENT"},
	{methodGIDEntry, "UVERBS_METHOD_QUERY_GID_ENTRY"}, {methodQueryContext, "UVERBS_METHOD_QUERY_CONTEXT"}, {methodGetContext, "UVERBS_METHOD_GET_CONTEXT"},
	{methodRegDmabufMR, "UVERBS_METHOD_REG_DMABUF_MR"}, {methodQueryMR, "UVERBS_METHOD_QUERY_MR"}, {methodAdviseMR, "UVERBS_METHOD_ADVISE_MR"},
	{methodDestroy, "UVERBS_METHOD_MR_DESTROY"}, {methodDestroy, "UVERBS_METHOD_DM_FREE"}, {methodDestroy, "UVERBS_METHOD_SRQ_DESTROY"},
	{attrUHWIn, "UVERBS_ATTR_UHW_IN"}, {attrUHWOut, "UVERBS_ATTR_UHW_OUT"}, {attrWriteCmd, "UVERBS_ATTR_WRITE_CMD"}, {attrCoreOut, "UVERBS_ATTR_CORE_OUT"},
	{attrInfoList, "UVERBS_ATTR_INFO_HANDLES_LIST"}, {attrTableNum, "UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES"}, {attrEntryResp, "UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY"},
	{attrCQEventFD, "UVERBS_ATTR_CREATE_CQ_EVENT_FD"}, {attrCQChannel, "UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL"}, {attrQPRespNum, "UVERBS_ATTR_CREATE_QP_RESP_QP_NUM"},
	{attrQPType, "UVERBS_ATTR_CREATE_QP_TYPE"}, {attrQPRecvCQ, "UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE"}, {attrSRQRespNum, "UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM"},
	{attrSRQType, "UVERBS_ATTR_CREATE_SRQ_TYPE"}, {attrDMAlignment, "UVERBS_ATTR_ALLOC_DM_ALIGNMENT"}, {attrDMMRRespRKey, "UVERBS_ATTR_REG_DM_MR_RESP_RKEY"},
	{attrDMMRDM, "UVERBS_ATTR_REG_DM_MR_DM_HANDLE"}, {attrAdviseSGEs, "UVERBS_ATTR_ADVISE_MR_SGE_LIST"}, {attrMRRespIOVA, "UVERBS_ATTR_QUERY_MR_RESP_IOVA"},
	{qpfSQSigAll, "IB_UVERBS_QP_CREATE_SQ_SIG_ALL"}, {qpfKnown, "IB_UVERBS_QP_CREATE_SQ_SIG_ALL | IB_UVERBS_QP_CREATE_BLOCK_MULTICAST_LOOPBACK | IB_UVERBS_QP_CREATE_SCATTER_FCS | IB_UVERBS_QP_CREATE_CVLAN_STRIPPING | IB_UVERBS_QP_CREATE_PCI_WRITE_END_PADDING"},
	{gidTypeRoCEv2, "IB_UVERBS_GID_TYPE_ROCE_V2"}, {driverRXE, "RDMA_DRIVER_RXE"}, {driverHFI1, "RDMA_DRIVER_HFI1"},
	{cmdPostSend, "IB_USER_VERBS_CMD_POST_SEND"}, {cmdReqNotifyCQ, "IB_USER_VERBS_CMD_REQ_NOTIFY_CQ"},
}

// TestLayout compares the structures with those of the installed headers, as the C
// compiler lays them out.
func TestLayout(t *testing.T) {
	var src strings.Builder
	src.WriteString("#include <stdio.h>\n#include <stddef.h>\n#include <stdint.h>\n#include <rdma/rdma_user_ioctl_cmds.h>\n#include <rdma/ib_user_ioctl_cmds.h>\n#include <rdma/ib_user_ioctl_verbs.h>\n#include <rdma/rdma_user_rxe.h>\n#include <rdma/rvt-abi.h>\nint main(void) {\n")
	emit := func(expr string) { fmt.Fprintf(&src, "printf(\"%%zu\\n\", (size_t)(%s));\n", expr) }
	var want []int
	var names []string
	add := func(v int, expr string) { want = append(want, v); names = append(names, expr); emit(expr) }
	for _, l := range layouts {
		typ := reflect.TypeOf(l.v)
		add(int(typ.Size()), "sizeof(struct "+l.c+")")
		require.Equal(t, int(typ.Size()), binary.Size(l.v), "%s has padding", l.c)
		for i, f := range strings.Fields(l.fields) {
			if i < typ.NumField() && strings.Count(l.fields, " ")+1 == typ.NumField() {
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
			t.Skipf("no C compiler or no RDMA headers: %v", err)
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
