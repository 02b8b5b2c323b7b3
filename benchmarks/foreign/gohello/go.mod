module svcbroker/benchmarks/foreign/gohello

go 1.19
