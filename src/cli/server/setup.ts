// `agent setup`: makes this machine a control plane, with a service, an organization and a lighthouse.

import { brand } from "../../brand.ts";
import type { Context, Implementation } from "../command.ts";
import { switchFlag, valueFlag } from "../values.ts";

export const command: Implementation = {
  notes:
    "It asks what no flag says; with --yes it takes the defaults. It needs systemd, and TCP port 443 and UDP port 4242 open\n" +
    "from outside; --tls acme also TCP port 80. Run again, it changes only what differs: a flag that is not given keeps its present value. An existing\n" +
    `data directory of \`${brand.executable} serve\` is taken over. Settings: /etc/${brand.id}/control-plane.toml.`,
  args: {
    yes: switchFlag("Ask nothing"),
    "public-name": valueFlag("HOST", "Name or address under which other machines reach this one"),
    email: valueFlag("EMAIL", "E-mail address of the first administrator"),
    "password-file": valueFlag("FILE", "Read the administrator's password from a file (- is standard input)"),
    "org-slug": valueFlag("SLUG", "The organization's short name", { default: "main" }),
    network: valueFlag(
      "CIDR",
      "Its overlay network (default: 10.77.0.0/16, or the next one that this machine does not use)",
    ),
    tls: valueFlag(
      "auto|acme|files|off",
      "auto: a certificate of an own CA, which machines pin; acme: one from Let's Encrypt, whose terms you accept, or from " +
        "--acme-directory; files: --tls-cert and --tls-key; off: behind a proxy of this machine",
      { default: "auto" },
    ),
    "acme-directory": valueFlag("URL", "Directory of another ACME server, with --tls acme"),
    "acme-ca": valueFlag("FILE", "CAs of that server's own certificate (PEM), for a private one"),
    "tls-ca": valueFlag(
      "FILE",
      "With --tls acme or files: root CA of the certificate (PEM), if machines do not know it; they pin it by the join keys",
    ),
    "tls-cert": valueFlag("FILE", "TLS certificate chain (PEM)"),
    "tls-key": valueFlag("FILE", "Private key of the certificate (PEM)"),
    port: valueFlag("N", "TCP port of the public address", { default: "443" }),
    lighthouse: switchFlag("Make this machine a lighthouse and relay, if the organization has none", {
      default: true,
      negativeDescription: "Do not make this machine a lighthouse",
    }),
    machines: valueFlag(
      "N",
      "How many join keys to make, each for one machine and an hour (once a machine has joined: none by itself)",
      { default: "2" },
    ),
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
