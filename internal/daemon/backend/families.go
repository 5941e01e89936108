package backend

import (
	"errors"

	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/service"
)

// eachFamily builds one domain per family. A family for which the build fails
// with a Missing error is left out, and said so; with no family left, what each
// of them lacks is the error.
func eachFamily[Missing error](log *zap.Logger, build func(service.Family) (proxy.Domain, error)) ([]proxy.Domain, error) {
	var domains []proxy.Domain
	var missing []error
	for _, family := range service.Families {
		domain, err := build(family)
		if _, lacks := errors.AsType[Missing](err); lacks {
			log.Info("family not served", zap.Stringer("family", family), zap.Error(err))
			missing = append(missing, err)
			continue
		}
		if err != nil {
			return nil, err
		}
		domains = append(domains, domain)
	}
	if len(domains) == 0 {
		return nil, errors.Join(missing...)
	}
	return domains, nil
}
