package genl

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

// TestParseAnswer reads a refusal with the whole request in it and with its header
// only, with the kernel's words and without, and cut off anywhere.
func TestParseAnswer(t *testing.T) {
	request := DelService(frontend("10.96.0.1", 80, service.TCP)).appendTo(nil, 0x1c, 5)
	refused := -int32(unix.EPERM)
	no := binary.NativeEndian.AppendUint32(nil, uint32(refused))
	for _, tt := range []struct {
		name    string
		flags   uint16
		request []byte
		words   string
	}{
		{"whole request", 0, request, ""},
		{"whole request and words", unix.NLM_F_ACK_TLVS, request, "not you"},
		{"header", unix.NLM_F_CAPPED, request[:headerBytes], ""},
		{"header and words", unix.NLM_F_CAPPED | unix.NLM_F_ACK_TLVS, request[:headerBytes], "not you"},
	} {
		payload := slices.Concat(no, tt.request)
		if tt.words != "" {
			payload = wire.AppendText(payload, extWords, tt.words)
		}
		h := header{kind: unix.NLMSG_ERROR, flags: tt.flags, seq: 5, payload: payload}
		if a, ok := parseAnswer(h); !ok || a.errno != unix.EPERM || a.words != tt.words {
			t.Errorf("%s: got %+v, %v", tt.name, a, ok)
		}
		for cut := range payload {
			h.payload = payload[:cut]
			if a, ok := parseAnswer(h); ok && (cut < 4+headerBytes || a.errno != unix.EPERM) {
				t.Errorf("%s: the first %d bytes give %+v", tt.name, cut, a)
			}
		}
	}
	if a, ok := parseAnswer(header{payload: make([]byte, 4+headerBytes)}); !ok || a.errno != 0 {
		t.Errorf("a yes gives %+v, %v", a, ok)
	}
}
