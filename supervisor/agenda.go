package supervisor

import "time"

// agenda is a heap (container/heap) of starts, earliest first.
type agenda[K comparable] []appointment[K]

type appointment[K comparable] struct {
	key K
	at  time.Time
}

func (a agenda[K]) Len() int           { return len(a) }
func (a agenda[K]) Less(i, j int) bool { return a[i].at.Before(a[j].at) }
func (a agenda[K]) Swap(i, j int)      { a[i], a[j] = a[j], a[i] }

// Push is for container/heap.
func (a *agenda[K]) Push(x any) { *a = append(*a, x.(appointment[K])) }

// Pop is for container/heap.
func (a *agenda[K]) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	*a = (*a)[:last]
	return x
}
