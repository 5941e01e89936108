module github.com/sluice-proxy/sluice/bench

go 1.26.0

replace github.com/sluice-proxy/sluice => ../
