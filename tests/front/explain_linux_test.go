package front

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExplainsMistakes: an unmodified program makes one mistake, and exec --explain says
// what it was. The texts are those that somebody reads who never saw this code.
func TestExplainsMistakes(t *testing.T) {
	rows := []struct{ name, want string }{
		{"rkey_range", `the access leaves the memory that the rkey stands for \(0x20d\)[^$]*That rkey stands for 65536 bytes at 0x`},
		{"rkey_pd", `the rkey belongs to another protection domain \(0x20c\)`},
		{"rkey_rights", `the rkey does not give the right to this operation \(0x20e\)[^$]*with the rights LOCAL_WRITE\.`},
		{"rkey_stale", `no memory region or window has this rkey \(0x206\)`},
		{"lkey_wrong", `Entry 0 of its scatter/gather list, 8 bytes at 0x\w+, lkey 0x777: no memory region has this lkey`},
		{"lkey_range", `That lkey stands for 65536 bytes at`},
		{"recv_key", `Entry 0 of its scatter/gather list, 10 bytes at 0x\w+, lkey 0x888`},
		{"inline_big", `4000 bytes inline, the QP allows \d+ \(EINVAL\)\.\n *called from post \(broken\.c:`},
		{"misaligned", `the remote address of an atomic must be a multiple of 8`},
		{"atomic_short", `an atomic needs a local entry of 8 bytes`},
		{"recv_reset", `post_recv: qp 0x\w+: state is RESET: receives may be posted from INIT on`},
		{"recv_full", `post_recv: .* the receive queue is full: \d+ receives are posted \(ENOMEM\)`},
		{"two_sge", `has 40 gather entries, the QP allows 1`},
		{"wr_inline", `wr_complete: qp 0x\w+: the batch that ends with wr 70 has a work request with 4000 bytes inline, the QP allows \d+ \(ENOSPC\)\.\n *called from wr_inline \(broken\.c:`},
		{"wr_pieces", `4000 bytes inline`},
		{"wr_list", `a work request with 40 gather entries`},
		{"wr_full", `the batch that ends with wr 169 is not posted: the send queue is full`},
		{"wr_right", `no call was refused`},
		{"bind_zero", `ZERO_BASED is for windows of type 2 \(EINVAL\)[^$]*dereg_mr: mr 0x\w+: the memory window mw 0x\w+ is bound to it \(EBUSY\)`},
		{"bind_full", `bind_mw: qp 0x\w+: wr 5 \(BIND_MW\): the send queue is full`},
		{"to_err", `Posted work of qp 0x\w+ came back with WR_FLUSH_ERR\.\n *because of a call from to_err \(broken\.c:[^$]*each work request once: 3 receives[^$]*posted while the QP was in ERR\.\n *posted by post`},
		{"in_order", `no call was refused`},
		{"sq_full", `the send queue is full: it has room for \d+ work requests, and as many are posted`},
		{"busy", `destroy_srq: srq \d+: in use by qp 0x\w+ \(EBUSY\)[^$]*destroy_cq: cq \d+: in use by qp 0x\w+, qp 0x\w+ \(EBUSY\)[^$]*in use by 1 shared receive queue, qp [^$]*post_recv: .* uses an SRQ: post to that[^$]*post_srq_recv: srq \d+: wr 1: the receive queue is full`},
		{"create", `cqe 100000000 exceeds max_cqe, \d+[^$]*cqe 0 is less than 1[^$]*comp_vector 99 is not below[^$]*max_send_wr 100000 exceeds max_qp_wr, \d+[^$]*no QPs of this type \(EOPNOTSUPP\)[^$]*100 bytes at 0x1000[^$]*the memory is read-only and the access flags would let the device write to it: 100 bytes at 0x[^$]*constants and files mapped read-only`},
		{"mask", `qp_state 9 is not a state`},
		{"big_mtu", `path_mtu is a code`},
		{"big_timeout", `timeout 40 does not fit 5 bits \(EINVAL\)\.[^$]*codes of a few bits`},
		{"psn", `It waits for PSN 0, and this request begins with 2048`},
		{"psn_old", `takes this request, PSN 16777200, for one that it has had already`},
		{"wrong_qpn", `3 packets named a queue pair number that is not in use here`},
		{"mw", `a BIND_MW of the type 1 window with rkey 0x\w+ to 64 bytes .*: the memory region lacks the MW_BIND right|lacks the MW_BIND right, or is zero-based\.`},
		{"cq_overrun", `the completion queue was full\.`},
		{"ud_qkey", `1 packet was a datagram with a wrong Q_Key`},
		{"ud_grh", `1 packet was longer than the receive that it met`},
		{"unmapped", `It takes 1 packet\. What could not be fetched from memory was not sent\.`},
		{"unmapped_target", `A request from qp 0x\w+ at [0-9.]+ was refused: registered memory could not be accessed`},
		{"nobody", `No node here has the address 127\.\d+\.\d+\.\d+\. Is that the GID which the peer has sent\?`},
		{"second_client", `It is connected to qp 0x\w+ at [0-9.]+, not to this one\. A packet does not say which queue pair`},
		{"retry_bits", `retry_cnt 8 does not fit 3 bits \(EINVAL\)[^$]*rnr_retry 9 does not fit 3 bits`},
		{"window_of_another", `the rkey is of a memory window that another QP has bound \(0x210\)`},
		{"imm_norecv", `1 message met an empty receive queue there`},
		{"ud_domain", `the address handle belongs to another protection domain`},
		{"ud_stranger", `1 packet named a queue pair number that is not in use here`},
		{"shrink", `4 completions wait, more than the \d asked for`},
		{"mcast_rc", `only UD QPs receive multicast`},
		{"zero_receives", `wr 1 has 1 scatter entries, the queue allows 0`},
		{"cut_uc", `belonged to a UC or UD message that did not arrive whole`},
		{"ud_norecv", `1 packet found no receive posted`},
	}
	s := newSite(t, nil)
	for _, r := range fewer(8, rows) {
		t.Run(r.name, func(t *testing.T) {
			out, err := s.command(t.Context(), "exec", "--explain", "--listen", "n1="+newAddress(), "--", program(t, "broken"), r.name).CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Regexp(t, r.want, string(out))
		})
	}
}

// TestLastByteIsNoPromise: a program that polls the last byte of a WRITE works, as on
// most machines, until strict mode uses its freedom.
func TestLastByteIsNoPromise(t *testing.T) {
	s := newSite(t, nil)
	for _, c := range []struct{ flag, messages, want string }{
		{"--strict=freedom", "100000", "torn"},
		{"--explain", "2000", "whole"},
	} {
		out, err := s.command(t.Context(), "exec", c.flag, "--listen", "n1="+newAddress(), "--", program(t, "lastbyte"), c.messages).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), c.want)
	}
}
