/* An ordinary program that uses TCP, for librspreload to lead to rsockets: it knows nothing
 * of RDMA. "tcp server ADDR PORT" sends back what "tcp client ADDR PORT" sends. */
#include <arpa/inet.h>
#include <err.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BLOCK 65536
#define BLOCKS 32

static char buf[BLOCK], want[BLOCK];

static void get(int s, size_t n)
{
	for (size_t at = 0; at < n;) {
		struct pollfd p = { .fd = s, .events = POLLIN };
		if (poll(&p, 1, -1) != 1)
			err(1, "poll");
		ssize_t k = read(s, buf + at, n - at);
		if (k <= 0)
			err(1, "read %zd", k);
		at += (size_t)k;
	}
}

static void put(int s, size_t n)
{
	for (size_t at = 0; at < n;) {
		ssize_t k = write(s, buf + at, n - at);
		if (k <= 0)
			err(1, "write %zd", k);
		at += (size_t)k;
	}
}

int main(int argc, char **argv)
{
	if (argc != 4)
		errx(2, "usage: tcp server|client ADDR PORT");
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((unsigned short)atoi(argv[3])) };
	inet_pton(AF_INET, argv[2], &a.sin_addr);
	int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	if (s < 0 || setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one))
		err(1, "socket");
	int server = !strcmp(argv[1], "server");
	if (server) {
		if (bind(s, (struct sockaddr *)&a, sizeof a) || listen(s, 5))
			err(1, "listen");
		puts("listening");
		fflush(stdout);
		int c = accept(s, NULL, NULL);
		if (c < 0)
			err(1, "accept");
		close(s);
		s = c;
	} else if (connect(s, (struct sockaddr *)&a, sizeof a)) {
		err(1, "connect");
	}
	int flags = fcntl(s, F_GETFL);
	if (flags < 0 || fcntl(s, F_SETFL, flags & ~O_NONBLOCK))
		err(1, "fcntl");
	for (int b = 0; b < BLOCKS; b++) {
		for (int i = 0; i < BLOCK; i++)
			want[i] = (char)(i * 7 + b + (i >> 8));
		if (server) {
			get(s, BLOCK);
		} else {
			memcpy(buf, want, BLOCK);
			put(s, BLOCK);
			memset(buf, 0, BLOCK);
			get(s, BLOCK);
		}
		if (memcmp(buf, want, BLOCK))
			errx(1, "block %d is wrong", b);
		if (server)
			put(s, BLOCK);
	}
	shutdown(s, SHUT_RDWR);
	if (close(s))
		err(1, "close");
	printf("%d bytes\n", BLOCK * BLOCKS);
	return 0;
}
