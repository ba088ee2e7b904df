// SPDX-License-Identifier: Apache-2.0
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

var (
	ca          = flag.String("ca", "", "PEM file of the trusted authority; without it no TLS")
	certificate = flag.String("certificate", "", "PEM file of the client certificate and its key")
	mechanism   = flag.String("mechanism", "", "of SASL; without it no login")
	user        = flag.String("user", "", "who logs in")
	password    = flag.String("password", "", "of the user")
	token       = flag.String("token", "", "of OAUTHBEARER")
)

// security returns TLS and SASL as the flags ask for them.
func security() ([]kgo.Opt, error) {
	options := []kgo.Opt{}
	if *ca != "" {
		config, err := tlsConfig()
		if err != nil {
			return nil, err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if *mechanism != "" {
		known := map[string]sasl.Mechanism{
			"PLAIN":         plain.Auth{User: *user, Pass: *password}.AsMechanism(),
			"SCRAM-SHA-256": scram.Auth{User: *user, Pass: *password}.AsSha256Mechanism(),
			"SCRAM-SHA-512": scram.Auth{User: *user, Pass: *password}.AsSha512Mechanism(),
			"OAUTHBEARER":   oauth.Auth{Token: *token}.AsMechanism(),
		}
		options = append(options, kgo.SASL(known[*mechanism]))
	}
	return options, nil
}

func tlsConfig() (*tls.Config, error) {
	text, err := os.ReadFile(*ca)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	if !config.RootCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("no certificate in %s", *ca)
	}
	if *certificate != "" {
		pair, err := tls.LoadX509KeyPair(*certificate, *certificate)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
