// SPDX-License-Identifier: Apache-2.0
package main

import (
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

var (
	ca          = flag.String("ca", "", "PEM file of the trusted authority; without it no TLS")
	certificate = flag.String("certificate", "", "PEM file of the client certificate and its key")
	mechanism   = flag.String("mechanism", "", "of SASL; without it no login")
	user        = flag.String("user", "", "who logs in")
	password    = flag.String("password", "", "of the user")
	token       = flag.String("token", "", "of OAUTHBEARER")
)

// secure sets TLS and SASL as the flags ask for them.
func secure(config *sarama.Config) error {
	if *ca != "" {
		protected, err := tlsConfig()
		if err != nil {
			return err
		}
		config.Net.TLS.Enable, config.Net.TLS.Config = true, protected
	}
	if *mechanism == "" {
		return nil
	}
	login := &config.Net.SASL
	login.Enable, login.Mechanism = true, sarama.SASLMechanism(*mechanism)
	login.User, login.Password, login.TokenProvider = *user, *password, fixedToken{}
	hashes := map[string]scram.HashGeneratorFcn{
		sarama.SASLTypeSCRAMSHA256: scram.SHA256, sarama.SASLTypeSCRAMSHA512: scram.SHA512,
	}
	login.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: hashes[*mechanism]} }
	return nil
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

type fixedToken struct{}

func (fixedToken) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: *token}, nil
}

// scramClient is what sarama asks a program for: it has no SCRAM of its own.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (one *scramClient) Begin(user, password, authorization string) error {
	client, err := one.hash.NewClient(user, password, authorization)
	if err == nil {
		one.conversation = client.NewConversation()
	}
	return err
}

func (one *scramClient) Step(challenge string) (string, error) {
	return one.conversation.Step(challenge)
}

func (one *scramClient) Done() bool {
	return one.conversation.Done()
}
