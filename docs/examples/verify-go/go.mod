module verify

go 1.19
