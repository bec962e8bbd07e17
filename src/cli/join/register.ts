// `agent register`: registers this machine with an organization.

import { given } from "../../base/given.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import type { Context, Implementation } from "../command.ts";
import { sealFlag, sealPin } from "./seal-pin.ts";
import { signInWithCode } from "../one-time-code.ts";
import { accessTokenFlag, newKeysFlag, permissionFlags, trustFlags } from "./node-flags.ts";
import { switchFlag, valueFlag } from "../values.ts";

export const command: Implementation = {
  notes:
    "The private keys never leave this machine. Give a registration token or an administrator's access token; without\n" +
    "both, a terminal asks for e-mail and password. After a failure, run the command again: it continues with the same keys.",
  args: {
    "api-base": valueFlag("URL", "URL of the control plane", { required: true }),
    "org-slug": valueFlag("SLUG", "The organization's slug", { required: true }),
    "node-name": valueFlag("NAME", "Name of this node (default: the host name)"),
    "registration-token": valueFlag("TOKEN", "Registration token", { secret: true }),
    ...accessTokenFlag,
    mode: valueFlag("server|desktop", "Run the engine under systemd (server) or under the daemon (desktop)", {
      default: "desktop",
    }),
    "ip-address": valueFlag("ADDRESS", "Overlay address (default: the next free one)"),
    "is-lighthouse": switchFlag("Make this node a lighthouse: other nodes find each other through it"),
    "public-ip": valueFlag("ADDRESS", "Public address or DNS name of this node"),
    "external-port": valueFlag("N", "Public UDP port of this node (default: 4242)"),
    "is-relay": switchFlag("Make this node a relay: it forwards traffic between nodes without a direct path"),
    "no-relay": switchFlag("Do not make this lighthouse a relay (default: a new lighthouse is one)"),
    "listen-port": valueFlag("N", "Local UDP port of the engine"),
    ...trustFlags,
    ...sealFlag,
    ...permissionFlags,
    wait: valueFlag("D", "How long to wait for an administrator's approval (default: without an end)"),
    "no-start": switchFlag("Do not install an engine or start a service"),
    force: switchFlag("Replace the local files of the same node"),
    ...newKeysFlag,
    replace: switchFlag("Take the place of this machine's former node: revoke it, keep its name and groups"),
  },
  examples: [
    `${brand.executable} register --api-base https://control.example.com --org-slug acme --registration-token-file token`,
    `printf '%s\\n' TOKEN | ${brand.executable} register --api-base https://control.example.com --org-slug acme --registration-token-file -`,
    `${brand.executable} register --api-base https://control.example.com --org-slug acme --mode server --is-lighthouse --public-ip 203.0.113.7`,
  ],
  run,
};

async function run(context: Context): Promise<void> {
  const { values, settings, output } = context;
  const { enroll, planEnrollment } = await import("./registration.ts");
  const enrollment = { ...(await readRegistration(context)), isStarted: !values.on("no-start") };
  if (settings.dryRun) return output.plan(await planEnrollment(enrollment, context));
  const { registration } = enrollment;
  const { directory, answer, started, left } = await enroll(enrollment, context);
  const { node } = answer;
  const object = {
    org_slug: registration.slug,
    node_id: node.id,
    name: node.name,
    ip_address: node.ip_address,
    mode: registration.mode,
    directory,
    started,
  };
  for (const sentence of left) output.say(sentence);
  output.result(
    object,
    `Registered ${node.name} with ${registration.slug}: ${node.ip_address}, files in ${directory}\n`,
  );
}

/** The registration by the flags, and what this machine has of the organization (`former`). */
async function readRegistration(context: Context) {
  const { values } = context;
  const { parseSlug } = await import("../../node/files/organizations.ts");
  const { parseNodeName, readApiCaByFingerprint } = await import("../../node/enroll/register-input.ts");
  const apiBase = values.required("api-base");
  const slug = parseSlug(values.required("org-slug"));
  const name = values.text("node-name");
  const { parsePermissions } = await import("../../node/files/granted/permission-flags.ts");
  const fingerprint = values.text("ca-fingerprint");
  refuseContradictions(values);
  const wishes = readWishes(values);
  // A plan shows no content of the file: "" stands for it, and the plan of the engine fetches the CA itself if it needs it.
  const fetchCa = (print: string) => (context.settings.dryRun ? "" : readApiCaByFingerprint(apiBase, print));
  const apiCa = fingerprint === undefined ? undefined : await fetchCa(fingerprint);
  const { salvageOrganization } = await import("../../node/files/damaged-organization.ts");
  // Registering again without --mode keeps the mode.
  const former = salvageOrganization(context.settings.configRoot, slug);
  const mode = values.choice("mode", ["server", "desktop"]) ?? former.mode ?? "desktop";
  const { refuseMode } = await import("../../platform/service-manager.ts");
  refuseMode(mode, context.system);
  const registration = {
    apiBase,
    slug,
    name: name === undefined ? undefined : parseNodeName(name),
    mode,
    allowPlainHttp: values.on("allow-plain-http"),
    force: values.on("force"),
    replaces: values.on("replace"),
    newKeys: values.on("new-keys"),
    allow: parsePermissions((flag) => values.text(flag), {
      configRoot: context.settings.configRoot,
      slug,
    }),
    apiCa,
    caFingerprint: fingerprint,
    credential: await readCredential(context, apiBase, apiCa),
    approvalMs: approvalMsOf(values),
    tell: context.output.say,
    wishes,
    ...sealPin(context, { isKeyed: isKeyed(values) }),
  };
  return { registration, former };
}

function refuseContradictions(values: Context["values"]): void {
  if (values.on("is-lighthouse") && values.text("public-ip") === undefined) {
    throw new AppError("usage", "--is-lighthouse needs --public-ip: other nodes must know its address");
  }
  if (values.on("is-relay") && values.on("no-relay"))
    throw new AppError("usage", "--is-relay and --no-relay contradict each other: leave one out");
  if (values.on("new-keys") && (values.on("force") || values.on("replace")))
    throw new AppError("usage", "--new-keys makes another node: leave out --force and --replace");
}

/** Optional properties of the node, as the request has them. */
const readWishes = (values: Context["values"]) => ({
  ...given({
    ip_address: values.text("ip-address"),
    public_ip: values.text("public-ip"),
    external_port: values.integer("external-port", 1, 65_535),
    listen_port: values.integer("listen-port", 0, 65_535),
  }),
  ...(values.on("is-lighthouse") ? { is_lighthouse: true } : {}),
  ...(values.on("no-relay") ? { is_relay: false } : {}),
  ...(values.on("is-relay") ? { is_relay: true } : {}),
});

/** Whether a join key or registration token was given. */
const isKeyed = (values: Context["values"]): boolean =>
  values.firstOf(["registration-token", "registration-token-file"]) !== undefined;

/** Undefined: without an end. */
function approvalMsOf(values: Context["values"]): number | undefined {
  const seconds = values.duration("wait", 0);
  return seconds === undefined ? undefined : seconds * 1000;
}

/** A registration token, or the access token of an administrator, who signs in on the terminal if no flag gives one. */
async function readCredential(context: Context, apiBase: string, ca: string | undefined) {
  const { values, system, settings } = context;
  const registrationToken = await values.secret("registration-token");
  const accessToken = await values.secret("access-token");
  if (registrationToken !== undefined && accessToken !== undefined) {
    throw new AppError("usage", "Give --registration-token or --access-token, not both");
  }
  if (registrationToken !== undefined && values.on("replace")) {
    throw new AppError(
      "usage",
      "--replace needs the rights of an administrator, which a registration token does not have",
      {
        hint: "Leave the registration token out: then you are asked for e-mail and password. Or give --access-token-file.",
      },
    );
  }
  if (registrationToken !== undefined) return { registrationToken };
  if (accessToken !== undefined) return { accessToken };
  // A plan asks nothing.
  if (settings.dryRun) return { accessToken: "" };
  if (!system.stdinIsTerminal) {
    throw new AppError("usage", "Missing --registration-token (or --access-token)", {
      hint: values.on("replace")
        ? "--replace needs an administrator: run it on a terminal, which asks for e-mail and password, or give --access-token-file."
        : "Ask an administrator for one (`agent admin token create ORG`), and give it with --registration-token-file.",
    });
  }
  const { ask } = await import("../ask.ts");
  const { makeClient } = await import("../../node/contact/requests/client.ts");
  const allowPlainHttp = values.on("allow-plain-http");
  const client = makeClient({ base: apiBase, system, allowPlainHttp, ...given({ ca }) });
  const questions = [
    { text: "E-mail: ", isSecret: false },
    { text: "Password: ", isSecret: true },
  ];
  const [email = "", password = ""] = await ask(questions, system);
  return { accessToken: (await signInWithCode(context, client, email, password)).access };
}
