/* What the preload library and the daemon say to each other, over a SEQPACKET socket.
 * All numbers are little-endian; structures have no padding. internal/daemon/proto.go
 * holds the same, and a test compares them. */
#ifndef RVTSIM_PROTOCOL_H
#define RVTSIM_PROTOCOL_H

#include <stdint.h>

#define RVTSIM_MAGIC 0x52565453u /* "STVR" */
#define RVTSIM_VERSION 1
#define RVTSIM_MAX_MSG 65536 /* of an answer; a command is at most 4 times as long */
#define RVTSIM_MAX_FILES 4
#define RVTSIM_NODE_LEN 64

/* Kinds of device file. */
#define RVTSIM_DEV_UVERBS 1
#define RVTSIM_DEV_CM 2

/* Operations. */
/* arg of OPEN and ATTACH is 0, or from a launcher the process that it speaks for, whose
 * memory it passes. */
#define RVTSIM_OPEN 1   /* kind, index; passes /proc/self/mem; answer: token, memfd, eventfd */
#define RVTSIM_ATTACH 2 /* token: this process shares a context that was opened before */
#define RVTSIM_WRITE 3  /* a write() to the device file */
#define RVTSIM_IOCTL 4  /* an ioctl(); arg is the argument's address, data its bytes */
#define RVTSIM_FDINFO 5 /* answer to QUERY_FD: arg is the inode, 0 if it is not open */
#define RVTSIM_HOST 6   /* the process hosts its part of the node itself; answer: a grant, the node's socket */
#define RVTSIM_REPORT 7 /* of such a process: passes a file with a report in JSON */
#define RVTSIM_OBEYED 8 /* of such a process: what came of an ORDER */
#define RVTSIM_REFUSED 9 /* a library refused a post: rvtsim_refused, and where */
#define RVTSIM_PEER 10 /* of a process that hosts itself: is the program stopped that has seat index at the GID in data? */
#define RVTSIM_INBOX 12 /* of a process that hosts itself: passes its inbox, and the event that wakes it */
#define RVTSIM_REACH 13 /* likewise: data is a GID, index the high byte of a QPN, token a number: whose inbox is that? */
#define RVTSIM_LIST 16  /* of the command line: passes a file with a report in JSON */
#define RVTSIM_STOP 17  /* of the command line: end the daemon */
#define RVTSIM_FAULT 18 /* of the command line: a fault as text; passes a file with the outcome in JSON */

/* Kinds of answer. */
#define RVTSIM_REPLY 0
#define RVTSIM_QUERY_FD 1 /* what is descriptor query_fd? */

#define RVTSIM_ASK 2      /* to a process that hosts itself: send a REPORT */
#define RVTSIM_FATAL 3    /* likewise: the device is about to go away */
#define RVTSIM_REACHED 6  /* likewise: answer to REACH; an inbox, its event, data is the number of the lane */
#define RVTSIM_ORDER 4    /* likewise: do what the JSON in the answer's data says, send OBEYED */
#define RVTSIM_HOW 5      /* likewise: the answer to PEER: token is the seat, bell_offset how its program is, data the GID */

/* Why a process that could host itself lets the daemon work for it. */
#define RVTSIM_WHY_FORK 1  /* it is a child of a process that does */
#define RVTSIM_WHY_LOAD 2  /* the engine cannot be loaded */
#define RVTSIM_WHY_START 3 /* the engine does not start */
#define RVTSIM_WHY_ABSENT 4 /* no engine was built */
#define RVTSIM_WHY_TOOL 5 /* a sanitizer or valgrind watches it */
#define RVTSIM_WHY_BUILD 6 /* the engine and the daemon are of different builds */
#define RVTSIM_WHY_REFUSED 255 /* the daemon has said why */

/* query_fd of the answer to OPEN: WRITE and IOCTL are to say where in the program they were
 * made, in lines at the end of the message: an address as in the file, in hexadecimal, and
 * the path of the file; the innermost call comes first. */
#define RVTSIM_WANT_SITES 1
#define RVTSIM_MAX_SITE 1024

#define RVTSIM_CMD_POST_SEND 28        /* IB_USER_VERBS_CMD_POST_SEND */
#define RVTSIM_VERBS_IOCTL 0xc0181b01u /* RDMA_VERBS_IOCTL */

/* The page that begins with the doorbell word also holds, from word GATE_FIRST on, a
 * table by QP handle modulo GATE_WORDS. An entry that holds the handle says that the QP
 * takes sends, so that a doorbell for it needs no answer. A second table of the same kind,
 * from word BUSY_FIRST on, says that the QP has sends under way. */
#define RVTSIM_GATE_FIRST 64
#define RVTSIM_GATE_WORDS 480
#define RVTSIM_BUSY_FIRST 544

struct rvtsim_req {
	uint32_t magic;
	uint16_t version, op;
	uint32_t pid;   /* as the program sees itself; the daemon trusts the socket instead */
	uint32_t kind;  /* RVTSIM_DEV_* */
	uint64_t token;
	uint64_t arg;
	uint32_t index; /* of the device; FDINFO: low half of the descriptor's device number */
	uint32_t why;   /* of OPEN: RVTSIM_WHY_*, or 0; of WRITE and IOCTL: bytes of the message that say where */
	char node[RVTSIM_NODE_LEN];
};

/* Followed by, each padded to 8 bytes: nfiles offsets (uint32) into out where the
 * descriptors that came along are to be stored, out_len bytes for out_addr, and nwrites
 * times rvtsim_write with its bytes. */
struct rvtsim_rep {
	uint32_t kind;
	int32_t error; /* errno, 0 for success */
	uint64_t token;
	uint64_t bell_offset; /* of the page in the memfd that begins with the doorbell word */
	uint64_t out_addr;
	uint32_t out_len;
	uint32_t nfiles;
	uint32_t nwrites;
	uint32_t query_fd;
};

/* verb of rvtsim_refused */
#define RVTSIM_POST_SEND 1
#define RVTSIM_POST_RECV 2
#define RVTSIM_POST_SRQ_RECV 3
#define RVTSIM_WR_COMPLETE 4 /* num_sge, length: the longest list, the most inline data */
#define RVTSIM_BIND_MW 5     /* flags: access flags */
/* No refusals: an object is about to be destroyed, and so many of its events are acknowledged:
 * completion events in length, asynchronous ones in remote_addr. Then: that is done. */
#define RVTSIM_DESTROY_CQ 6
#define RVTSIM_DESTROY_QP 7
#define RVTSIM_DESTROYED 8

struct rvtsim_refused {
	uint32_t verb, handle, error; /* errno */
	uint32_t opcode, flags, num_sge;
	uint32_t first, reserved; /* bytes of the first entry */
	uint64_t wr_id, length, remote_addr;
};

struct rvtsim_write {
	uint64_t addr;
	uint32_t len;
	uint32_t reserved;
};

#endif
