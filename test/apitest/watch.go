package apitest

import (
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher is one client that watches a selection.
type watcher struct {
	name  string
	sel   selection
	at    int // version up to which it knows everything
	inner runtime.Encoder
	out   streaming.Encoder
	flush *http.ResponseController
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request, name string, sel selection) {
	info, err := negotiate(r)
	if err != nil {
		refused(w, apierrors.NewBadRequest(err.Error()))
		return
	}
	version := resources[name].version
	w.Header().Set("Content-Type", info.MediaType+";stream=watch")
	w.WriteHeader(http.StatusOK)
	c := &watcher{
		name: name, sel: sel, flush: http.NewResponseController(w),
		inner: codecs.EncoderForVersion(info.Serializer, version),
		out: streaming.NewEncoder(info.StreamSerializer.NewFrameWriter(w),
			codecs.EncoderForVersion(info.StreamSerializer.Serializer, version)),
	}
	c.at, _ = strconv.Atoi(r.URL.Query().Get("resourceVersion")) // none is 0
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		err = s.sendInitial(c)
	}
	for err == nil {
		var changed <-chan struct{}
		if changed, err = s.sendNews(c); err != nil {
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// sendInitial streams the objects and the bookmark that ends them (KEP-3157).
func (s *Server) sendInitial(c *watcher) error {
	s.mu.Lock()
	at, all := s.store.version, s.store.selected(c.name, c.sel)
	s.mu.Unlock()
	for _, object := range all {
		if err := c.send(watch.Added, object); err != nil {
			return err
		}
	}
	c.at = at
	bookmark := resources[c.name].single.DeepCopyObject()
	accessor := accessorOf(bookmark)
	accessor.SetResourceVersion(strconv.Itoa(at))
	accessor.SetAnnotations(map[string]string{metav1.InitialEventsAnnotationKey: "true"})
	return c.send(watch.Bookmark, bookmark)
}

// sendNews sends what has happened since the last time, and gives what is closed
// by the next change.
func (s *Server) sendNews(c *watcher) (<-chan struct{}, error) {
	s.mu.Lock()
	news, changed, oldest := s.store.since(c.name, c.at, c.sel), s.changed, s.store.oldest
	s.mu.Unlock()
	if c.at < oldest {
		expired := apierrors.NewResourceExpired("too old resource version")
		status := expired.Status()
		if err := c.send(watch.Error, &status); err != nil {
			return nil, err
		}
		return nil, expired
	}
	for _, n := range news {
		if err := c.send(n.kind, n.object); err != nil {
			return nil, err
		}
		c.at = n.version
	}
	return changed, c.flush.Flush()
}

func (c *watcher) send(kind watch.EventType, object runtime.Object) error {
	raw, err := runtime.Encode(c.inner, object)
	if err != nil {
		return err
	}
	return c.out.Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}})
}
