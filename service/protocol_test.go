package service

import "testing"

func TestProtocol(t *testing.T) {
	tests := []struct {
		protocol Protocol
		text     string
		number   uint8
	}{{TCP, "tcp", 6}, {UDP, "udp", 17}, {SCTP, "sctp", 132}}
	for _, tt := range tests {
		if tt.protocol.String() != tt.text || tt.protocol.Number() != tt.number {
			t.Errorf("got %s %d, want %s %d", tt.protocol, tt.protocol.Number(), tt.text, tt.number)
		}
	}
}
