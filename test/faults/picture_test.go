package faults

import "github.com/sluice-proxy/sluice/dataplane"

// picture is what a table holds.
type picture map[dataplane.ID]string

func pictureOf(objects []dataplane.Object) picture {
	p := make(picture, len(objects))
	for _, o := range objects {
		p[o.ID] = o.Body
	}
	return p
}

// missing gives something that another picture lacks or has differently.
func (p picture) missing(in picture) (dataplane.ID, bool) {
	for id, body := range p {
		if there, ok := in[id]; !ok || there != body {
			return id, true
		}
	}
	return dataplane.ID{}, false
}
