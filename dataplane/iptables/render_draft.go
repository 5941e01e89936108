package iptables

import (
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/dispatch"
	"github.com/sluice-proxy/sluice/service"
)

// draft gathers the objects of one Service. It lives as long as one call of
// Renderer.Service.
type draft struct {
	objects []dataplane.Object
	// text is where bodies are put together.
	text []byte
}

func newDraft(ports []service.PortView) *draft {
	objects, widest := 2, 0
	for i := range ports {
		p := &ports[i]
		objects += 4 + len(p.ExternalIPs) + 2*len(p.LoadBalancerVIPs) + len(p.Local)
		widest = max(widest, len(p.Cluster), len(p.Local))
	}
	// A balancing rule takes about a hundred bytes.
	return &draft{objects: make([]dataplane.Object, 0, objects), text: make([]byte, 0, 256+100*widest)}
}

// begin empties the text for the next body.
func (d *draft) begin() { d.text = d.text[:0] }

// line begins a new line of the body.
func (d *draft) line() {
	if len(d.text) > 0 {
		d.text = append(d.text, '\n')
	}
}

// rule adds a line to the body.
func (d *draft) rule(r rule) {
	d.line()
	d.text = r.appendTo(d.text)
}

// endChain makes the text a chain of table nat.
func (d *draft) endChain(name string, refs ...dataplane.ID) {
	d.objects = append(d.objects, dataplane.Object{
		ID:   natChain(name),
		Kind: dataplane.Owned,
		Body: string(d.text),
		Refs: refs,
	})
}

// element adds one dispatch rule. A target that is a chain of ours is named in
// refs.
func (d *draft) element(container dispatch.Container, key string, r rule, refs ...dataplane.ID) {
	d.begin()
	d.rule(r)
	d.objects = append(d.objects, dataplane.Object{
		ID:   dataplane.ID{Container: container.Name(), Name: key},
		Kind: dataplane.Element,
		Body: string(d.text),
		Refs: refs,
	})
}

func natChain(name string) dataplane.ID {
	return dataplane.ID{Container: string(NAT), Name: name}
}

// renderHealth accepts connections to the health-check node port, whatever the
// endpoints; 0 means that there is none.
func (d *draft) renderHealth(key service.Key, port uint16) {
	if port == 0 {
		return
	}
	d.element(filterHealth, dispatch.PortKey(service.TCP, port), rule{
		protocol: service.TCP.String(),
		port:     port,
		comment:  comment{subject: key.String(), after: " health check node port"},
		target:   "ACCEPT",
	})
}
