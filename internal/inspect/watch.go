package inspect

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// WatchEvery is the pause between two questions of Watch.
const WatchEvery = time.Second

// Watch prints a list and then each Service that changes, appears or goes, until the context ends.
// A question that fails ends it.
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

// printNews prints what differs between two lists, in the columns of the whole list.
func printNews(to io.Writer, o ListOptions, list *ServiceList, before, now map[string]Service) error {
	var whole strings.Builder
	if err := list.Print(&whole, o); err != nil {
		return err
	}
	_, rows, _ := strings.Cut(whole.String(), "\n") // without the heads
	all := ListOptions{Namespaces: true, Wide: true}
	var news strings.Builder
	for i := range list.Items {
		var row string
		row, rows, _ = strings.Cut(rows, "\n")
		s := &list.Items[i]
		former, known := before[s.Namespace+"/"+s.Name]
		if !known || !slices.Equal(all.cells(&former, former.LastChange), all.cells(s, s.LastChange)) {
			news.WriteString(row + "\n")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, known := now[name]; !known {
			news.WriteString(name + " is gone\n")
		}
	}
	_, err := io.WriteString(to, news.String())
	return err
}
