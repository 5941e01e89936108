package web

import (
	"encoding/json"
	"fmt"
	"net/http"

	"sigs.k8s.io/yaml"
)

// zpage is a page of the family of /flagz and /statusz: a text for people, or an
// object for programs that ask for its kind, group and version.
type zpage struct {
	// kind is that of the object, in group config.k8s.io.
	kind string
	text func() string
	// fields gives what the object holds beside its type and name.
	fields func() map[string]any
}

const (
	zGroup      = "config.k8s.io"
	zVersion    = "v1beta1"
	zDeprecated = "v1alpha1"
)

// ServeHTTP answers in the form that is accepted.
func (z *zpage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	form, ok := negotiate(r.Header.Get("Accept"), z.kind)
	if !ok {
		http.Error(w, fmt.Sprintf("want to accept text/plain, or application/json or application/yaml with ;as=%s;g=%s;v=%s", z.kind, zGroup, zVersion),
			http.StatusNotAcceptable)
		return
	}
	if form.mediaType == mediaText {
		answer(w, http.StatusOK, "text/plain; charset=utf-8", []byte(z.text()))
		return
	}
	object := z.fields()
	object["kind"], object["apiVersion"] = z.kind, zGroup+"/"+form.version
	object["metadata"] = map[string]string{"name": component}
	marshal := json.Marshal
	if form.mediaType == mediaYAML {
		marshal = func(v any) ([]byte, error) { return yaml.Marshal(v) }
	}
	text, err := marshal(object)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if form.version == zDeprecated {
		w.Header().Set("Warning", fmt.Sprintf(`299 - "%s %s is deprecated; use %s"`, z.kind, zDeprecated, zVersion))
	}
	answer(w, http.StatusOK, form.mediaType, text)
}
