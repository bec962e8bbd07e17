// `agent setup`: makes this machine a control plane, with a service, an organization and a lighthouse.

import { brand } from "../../brand.ts";
import type { Context, Implementation } from "../command.ts";

export const command: Implementation = {
  notes:
    "It asks what no flag says; with --yes it takes the defaults. It needs systemd, and TCP port 443 and UDP port 4242 open\n" +
    "from outside; --tls acme also TCP port 80. Run again, it changes only what differs: a flag that is not given keeps its present value. An existing\n" +
    `data directory of \`${brand.executable} serve\` is taken over. Settings: /etc/${brand.id}/control-plane.toml.`,
  args: {
    yes: { type: "boolean", description: "Ask nothing" },
    "public-name": {
      type: "string",
      valueHint: "HOST",
      description: "Name or address under which other machines reach this one",
    },
    email: { type: "string", valueHint: "EMAIL", description: "E-mail address of the first administrator" },
    "password-file": {
      type: "string",
      valueHint: "FILE",
      description: "Read the administrator's password from a file (- is standard input)",
    },
    "org-slug": {
      type: "string",
      valueHint: "SLUG",
      default: "main",
      description: "The organization's short name",
    },
    network: {
      type: "string",
      valueHint: "CIDR",
      description:
        "Its overlay network (default: 10.77.0.0/16, or the next one that this machine does not use)",
    },
    tls: {
      type: "string",
      valueHint: "auto|acme|files|off",
      default: "auto",
      description:
        "auto: a certificate of an own CA, which machines pin; acme: one from Let's Encrypt, whose terms you accept, or from " +
        "--acme-directory; files: --tls-cert and --tls-key; off: behind a proxy of this machine",
    },
    "acme-directory": {
      type: "string",
      valueHint: "URL",
      description: "Directory of another ACME server, with --tls acme",
    },
    "acme-ca": {
      type: "string",
      valueHint: "FILE",
      description: "CAs of that server's own certificate (PEM), for a private one",
    },
    "tls-ca": {
      type: "string",
      valueHint: "FILE",
      description:
        "With --tls acme or files: root CA of the certificate (PEM), if machines do not know it; they pin it by the join keys",
    },
    "tls-cert": { type: "string", valueHint: "FILE", description: "TLS certificate chain (PEM)" },
    "tls-key": { type: "string", valueHint: "FILE", description: "Private key of the certificate (PEM)" },
    port: { type: "string", valueHint: "N", default: "443", description: "TCP port of the public address" },
    lighthouse: {
      type: "boolean",
      default: true,
      description: "Make this machine a lighthouse and relay, if the organization has none",
      negativeDescription: "Do not make this machine a lighthouse",
    },
    machines: {
      type: "string",
      valueHint: "N",
      default: "2",
      description:
        "How many join keys to make, each for one machine and an hour (once a machine has joined: none by itself)",
    },
  },
  examples: [
    `${brand.executable} setup`,
    `${brand.executable} setup --yes --public-name control.example.org --email ada@example.org --org-slug acme`,
    `${brand.executable} setup --dry-run --yes --public-name control.example.org --email ada@example.org`,
  ],
  async run(context: Context) {
    const { readSetupRequest } = await import("./setup-request.ts");
    const { planSetup, setUp } = await import("./setup-steps.ts");
    const request = await readSetupRequest(context);
    if (context.settings.dryRun) {
      context.output.plan(await planSetup(request, context));
      return 0;
    }
    return setUp(request, context);
  },
};
