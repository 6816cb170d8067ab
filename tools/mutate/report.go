package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
)

func shuffled(ms []*mutant, seed uint64) []*mutant {
	ms = slices.Clone(ms)
	r := rand.New(rand.NewPCG(seed, 1))
	r.Shuffle(len(ms), func(i, j int) { ms[i], ms[j] = ms[j], ms[i] })
	return ms
}

// counts is how many faults had each result.
type counts [numResults]int

// tried returns the faults that were tried, and the share of them in percent that
// tests noticed.
func (c *counts) tried() (n int, percent float64) {
	n = c[killed] + c[timedOut] + c[survived] + c[unreached]
	if n == 0 {
		return 0, 0
	}
	return n, 100 * float64(c[killed]+c[timedOut]) / float64(n)
}

// report prints a table by file, one by kind, which tests noticed, and what nobody
// noticed.
func report(w io.Writer, ms []*mutant) {
	table(w, "file", ms, func(m *mutant) string { return m.file })
	table(w, "kind", ms, func(m *mutant) string { return m.kind })
	fmt.Fprintf(w, "\n| first noticed by | faults |\n|---|---|\n")
	by := make(map[string]int)
	for _, m := range ms {
		if m.by != "" {
			by[m.by]++
		}
	}
	for _, k := range keys(by) {
		fmt.Fprintf(w, "| `%s` | %d |\n", k, by[k])
	}
	fmt.Fprintln(w)
	for _, m := range ms {
		if m.result == survived || m.result == unreached {
			fmt.Fprintf(w, "%s: %s\n", resultNames[m.result], m)
		}
	}
}

func table(w io.Writer, head string, ms []*mutant, key func(*mutant) string) {
	rows := make(map[string]*counts)
	var all counts
	for _, m := range ms {
		k := key(m)
		if rows[k] == nil {
			rows[k] = new(counts)
		}
		rows[k][m.result]++
		all[m.result]++
	}
	fmt.Fprintf(w, "\n| %s | tried | killed | timeout | survived | unreached | noticed |\n|---|---|---|---|---|---|---|\n", head)
	line := func(name string, c *counts) {
		n, percent := c.tried()
		fmt.Fprintf(w, "| %s | %d | %d | %d | %d | %d | %.0f %% |\n", name, n, c[killed], c[timedOut], c[survived], c[unreached], percent)
	}
	for _, k := range keys(rows) {
		line("`"+k+"`", rows[k])
	}
	line("all", &all)
}

func keys[V any](m map[string]V) []string {
	var ks []string
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}
