package inspect

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// WatchEvery is the pause between two questions of Watch.
const WatchEvery = time.Second

// Watch prints a list and then each Service that changes, appears or goes, until the context ends.
// A question that fails is repeated with the next one.
func Watch(ctx context.Context, to io.Writer, o ListOptions, ask func(context.Context) (*ServiceList, error)) error {
	list, err := ask(ctx)
	if err != nil {
		return err
	}
	if err := list.Print(to, o); err != nil {
		return err
	}
	seen := byName(list)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(WatchEvery):
		}
		list, err := ask(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		now := byName(list)
		if err := printNews(to, o, list, seen, now); err != nil {
			return err
		}
		seen = now
	}
}

// byName returns the Services as they are shown; the age of the last change does not count.
func byName(list *ServiceList) map[string]Service {
	all := make(map[string]Service, len(list.Items))
	for _, s := range list.Items {
		all[s.Namespace+"/"+s.Name] = s
	}
	return all
}

// printNews prints what differs between two lists.
func printNews(to io.Writer, o ListOptions, list *ServiceList, before, now map[string]Service) error {
	wide := ListOptions{Namespaces: true, Wide: true}
	t := newTable(to)
	for i := range list.Items {
		s := &list.Items[i]
		former, known := before[s.Namespace+"/"+s.Name]
		if !known || !slices.Equal(wide.cells(&former, former.LastChange), wide.cells(s, s.LastChange)) {
			t.row(o.cells(s, list.Now)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, known := now[name]; !known {
			t.row(fmt.Sprintf("%s is gone", name))
		}
	}
	return t.end()
}
