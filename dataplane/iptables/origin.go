package iptables

import (
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

var _ dataplane.Origin = (*Writer)(nil)

// Owner reads the comments of a rule, or of a chain's rules: the first word of the
// form "namespace/name", for some with ":port".
func (w *Writer) Owner(o *dataplane.Object) (service.Key, bool) {
	const flag = `--comment `
	for rest := o.Body; ; {
		_, after, found := strings.Cut(rest, flag)
		if !found {
			return service.Key{}, false
		}
		comment, after, quoted := strings.Cut(strings.TrimPrefix(after, `"`), `"`)
		if !quoted {
			comment, after, _ = strings.Cut(comment, " ")
		}
		for word := range strings.FieldsSeq(comment) {
			namespace, name, named := strings.Cut(word, "/")
			if name, _, _ = strings.Cut(name, ":"); named && namespace != "" && name != "" {
				return service.Key{Namespace: namespace, Name: name}, true
			}
		}
		rest = after
	}
}

// Refs gives the chains that an object leads to: what was read says so itself.
func (w *Writer) Refs(o *dataplane.Object) []dataplane.ID { return o.Refs }
