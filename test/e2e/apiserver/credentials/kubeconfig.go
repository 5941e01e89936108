package credentials

import (
	"net/netip"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig writes a file that stands for itself: the authority is inside, so it can be copied.
func writeKubeconfig(path string, server netip.AddrPort, caFile, userName, token string) error {
	ca, err := os.ReadFile(caFile)
	if err != nil {
		return err
	}
	content, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			"e2e": {Server: "https://" + server.String(), CertificateAuthorityData: ca},
		},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{userName: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"e2e": {Cluster: "e2e", AuthInfo: userName}},
		CurrentContext: "e2e",
	})
	if err != nil {
		return err
	}
	return replace(path, content)
}
