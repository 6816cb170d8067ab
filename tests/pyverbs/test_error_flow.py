"""Completions with errors, in the form of rdma-core's pyverbs suite, which has none.

Each test makes one mistake on a pair of RC queue pairs, and looks at the status on both
sides, at what is valid in such a completion, and at the state of the queue pairs.
"""
import time
from unittest import mock

from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR
from pyverbs.mr import MR
import pyverbs.enums as e

from tests.base import RCResources, RDMATestCase
import tests.utils as u

ALL = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | \
    e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
PATIENCE = 10


class ErrorRes(RCResources):
    """Every right at queue pair and region, few retries."""

    def create_mr(self):
        self.mr = MR(self.pd, self.msg_size, ALL)

    def create_qp_cap(self):
        return QPCap(max_recv_wr=8, max_send_wr=8)

    def create_qp_init_attr(self):
        return QPInitAttr(qp_type=e.IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=self.create_qp_cap(), sq_sig_all=1)

    def create_qp_attr(self):
        attr = QPAttr(port_num=self.ib_port)
        attr.qp_access_flags = ALL
        return attr

    def to_rts(self):
        with mock.patch.multiple('tests.base', TIMEOUT=10, RETRY_CNT=1, RNR_RETRY=1):
            super().to_rts()


class ErrorFlowTest(RDMATestCase):
    def setUp(self):
        super().setUp()
        self.client = ErrorRes(**self.dev_info)
        self.server = ErrorRes(**self.dev_info)
        self.client.pre_run(self.server.psns, self.server.qps_num)
        self.server.pre_run(self.client.psns, self.client.qps_num)

    def send(self, opcode=e.IBV_WR_SEND, wr_id=7, lkey=None, rkey=None, length=64):
        mr = self.client.mr
        wr = SendWR(wr_id=wr_id, num_sge=1, opcode=opcode, send_flags=e.IBV_SEND_SIGNALED,
                    sg=[SGE(mr.buf, length, mr.lkey if lkey is None else lkey)])
        if opcode != e.IBV_WR_SEND:
            wr.set_wr_rdma(self.server.mr.rkey if rkey is None else rkey, self.server.mr.buf)
        self.client.qp.post_send(wr)

    def receive(self, wr_id=9, length=64):
        mr = self.server.mr
        self.server.qp.post_recv(RecvWR(wr_id=wr_id, num_sge=1, sg=[SGE(mr.buf, length, mr.lkey)]))

    def completion(self, side, wr_id, status):
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            n, wcs = side.cq.poll(1)
            if n:
                self.assertEqual(u.wc_status_to_str(status), u.wc_status_to_str(wcs[0].status))
                self.assertEqual(wr_id, wcs[0].wr_id)
                self.assertEqual(side.qp.qp_num, wcs[0].qp_num)
                return
        self.fail('no completion')

    def dead(self, side):
        self.assertEqual(e.IBV_QPS_ERR, side.qp.query(e.IBV_QP_STATE)[0].qp_state)

    def test_bad_lkey(self):
        self.send(lkey=self.client.mr.lkey + 0x100)
        self.completion(self.client, 7, e.IBV_WC_LOC_PROT_ERR)
        self.dead(self.client)

    def test_bad_rkey(self):
        self.send(e.IBV_WR_RDMA_WRITE, rkey=self.server.mr.rkey + 0x100)
        self.completion(self.client, 7, e.IBV_WC_REM_ACCESS_ERR)
        self.dead(self.client)
        self.dead(self.server)

    def test_short_receive(self):
        self.receive(length=16)
        self.send()
        self.completion(self.server, 9, e.IBV_WC_LOC_LEN_ERR)
        self.completion(self.client, 7, e.IBV_WC_REM_INV_REQ_ERR)
        self.dead(self.client)
        self.dead(self.server)

    def test_wrong_access(self):
        readable = MR(self.server.pd, 64, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_READ)
        wr = SendWR(wr_id=7, num_sge=1, opcode=e.IBV_WR_RDMA_WRITE, send_flags=e.IBV_SEND_SIGNALED,
                    sg=[SGE(self.client.mr.buf, 8, self.client.mr.lkey)])
        wr.set_wr_rdma(readable.rkey, readable.buf)
        self.client.qp.post_send(wr)
        self.completion(self.client, 7, e.IBV_WC_REM_ACCESS_ERR)
        self.dead(self.client)

    def test_flush(self):
        self.receive(wr_id=11)
        self.receive(wr_id=12)
        self.server.qp.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
        for wr_id in (11, 12):
            self.completion(self.server, wr_id, e.IBV_WC_WR_FLUSH_ERR)

    def test_peer_gone(self):
        self.server.qp.modify(QPAttr(qp_state=e.IBV_QPS_RESET), e.IBV_QP_STATE)
        self.send(wr_id=7)
        self.send(wr_id=8)
        self.completion(self.client, 7, e.IBV_WC_RETRY_EXC_ERR)
        self.completion(self.client, 8, e.IBV_WC_WR_FLUSH_ERR)
        self.dead(self.client)

    def test_no_receive(self):
        self.send()
        self.completion(self.client, 7, e.IBV_WC_RNR_RETRY_EXC_ERR)
        self.dead(self.client)

    def test_post_after_error(self):
        self.test_bad_lkey()
        try:
            self.send(wr_id=8)
        except PyverbsRDMAError:
            return  # some devices refuse it
        self.completion(self.client, 8, e.IBV_WC_WR_FLUSH_ERR)
