package sweep

import (
	"context"
	"sync"
)

// Local carries out every point of the task in this process, jobs at a time, and returns
// the results in the order of the points. progress, if not nil, is told how many there
// are, by one goroutine at a time. The results are those that [Hub.Submit] returns; there
// is no server, so an interruption loses them. The only error is that of the context.
func Local(ctx context.Context, t *Task, jobs int, progress func(done, total int)) ([]*Result, error) {
	results := make([]*Result, len(t.Points))
	var mu sync.Mutex // guards next and done, and holds progress together
	next, done := 0, 0
	take := func() (i int, ok bool) {
		mu.Lock()
		defer mu.Unlock()
		i, next = next, next+1
		return i, i < len(t.Points) && ctx.Err() == nil
	}
	var wg sync.WaitGroup
	for range min(jobs, len(t.Points)) {
		wg.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				r, err := t.run(ctx, t.Points[i])
				if err != nil {
					return // the context has ended
				}
				results[i] = r
				mu.Lock()
				done++
				if progress != nil {
					progress(done, len(t.Points))
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return results, ctx.Err()
}
