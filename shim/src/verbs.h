/* Structures of libibverbs: those that inline functions of its header have built into every
 * program, so that they cannot change. */
#ifndef RVTSIM_VERBS_H
#define RVTSIM_VERBS_H

#include <pthread.h>

struct verbs_context { /* struct ibv_context */
	void *device;
	struct {
		void *before[8];
		void *bind_mw;
		void *after_bind[2];
		int (*poll_cq)(void **cq, int n, void *wc);
		void *between[8];
		void *post_srq_recv;
		void *objects[4];
		void *post_send, *post_recv;
		void *after[5];
	} ops;
	int cmd_fd, async_fd, num_comp_vectors;
	pthread_mutex_t mutex;
	void *abi_compat;
};

/* posts.c */
void shim_watch_posts(struct verbs_context *ctx);

#endif
