/* What the preload library and the engine, a library written in Go that it loads into the
 * program, call of each other. Handles and structures are those of protocol.h. */
#ifndef RVTSIM_ENGINE_H
#define RVTSIM_ENGINE_H

#include <stddef.h>
#include <stdint.h>

#define RVTSIM_ENGINE_ABI 4
#define RVTSIM_ENGINE_TABLE "rvtsim_engine_table"
#define RVTSIM_ENGINE_NAME 108 /* longest name of the engine's socket */

/* One piece of memory to copy: struct mr.Op of the engine. */
struct rvtsim_piece {
	uint64_t addr;   /* in the program */
	void *buf;       /* in the engine */
	int64_t len, cap;
};

/* What the engine calls. All of it may be called from any thread. */
struct rvtsim_host {
	int (*move)(int fd);    /* another number for fd, which is closed, out of the program's way */
	void (*forget)(int fd); /* fd is about to be closed */
	/* Copies pieces between engine and program, in order; returns how many. Memory that
	 * is not there ends it. */
	int64_t (*copy)(const struct rvtsim_piece *p, int64_t n, int to_program);
	/* Names code of the engine, from start up to end, that touches the program's memory: after a
	 * fault it goes on at landing, with all registers as they were. -1 if that cannot be. */
	int (*landing)(uintptr_t start, uintptr_t end, uintptr_t landing);
	/* 0, or -1 if the memory is not there. */
	int (*compare_swap)(uint64_t addr, uint64_t compare, uint64_t swap, uint64_t *old);
	int (*fetch_add)(uint64_t addr, uint64_t add, uint64_t *old);
	int (*write_event)(int fd, const void *buf, size_t n); /* never raises SIGPIPE; errno, or 0 */
};

struct rvtsim_opened {
	int index;
	int memory, event; /* descriptors; they are the caller's */
	uint64_t token, bell_offset;
};

/* How to ring without a call: node.Bell of the engine, which says when that is enough. */
struct rvtsim_bell {
	uint32_t rung, napping;
};

/* What the preload library calls. doorbell, progress and settle never wait. None may be called
 * while the same thread is inside another one, from a signal handler say. */
struct rvtsim_engine {
	int abi;
	/* 0 or errno. socket and port belong to the engine if it succeeds. */
	int (*start)(const struct rvtsim_host *host, const void *grant, size_t n, int socket, int port, char name[RVTSIM_ENGINE_NAME]);
	int (*open)(struct rvtsim_opened *o); /* 0 or errno */
	void (*close)(int index);
	/* Length of the answer, a struct rvtsim_rep, in out; the descriptors that belong to it in
	 * files. */
	int (*command)(int index, int op, uint64_t arg, const void *data, size_t n, void *out, size_t room, int *files, int *nfiles);
	int (*doorbell)(int index, uint32_t qp); /* 0 if a command is needed instead */
	void (*progress)(void);
	void (*settle)(void); /* sends what waits for company */
	void (*leave)(void);
	struct rvtsim_bell *bell;
};

#endif
