// The formats of webhooks, and which one follows from a URL. Without schemas, so that the console bundles this file as it is
// (src/server/console/bundler.ts).

/**
 * The formats of deliveries, with their words in forms. `json` is signed, as https://www.standardwebhooks.com specifies. It is the
 * initial choice of a form, which stands for "by the URL" (`formatOf`), and its words say so.
 */
export const formatWords = {
  json: "By the URL, else JSON for programs",
  slack: "Slack",
  mattermost: "Mattermost",
  teams: "Microsoft Teams",
  discord: "Discord",
  ntfy: "ntfy",
  mail: "E-mail",
  syslog: "Syslog over TLS",
};
export type WebhookFormat = keyof typeof formatWords;
export const webhookFormats = Object.keys(formatWords) as WebhookFormat[];

/** The schemes that have a format of their own. */
const formatByScheme: Readonly<Record<string, WebhookFormat>> = { "mailto:": "mail", "syslogs:": "syslog" };
/** The services that are known by their host. */
const formatByHost: readonly (readonly [RegExp, WebhookFormat])[] = [
  [/^hooks\.slack(-gov)?\.com$/, "slack"],
  [/^(canary\.|ptb\.)?discord(app)?\.com$/, "discord"],
  [/\.(logic\.azure\.com|powerplatform\.com)$/, "teams"],
  [/^ntfy\.sh$/, "ntfy"],
];

/** The format that the scheme or host of a URL says; `json` for others. */
export function formatOf(url: string): WebhookFormat {
  const { protocol, hostname } = new URL(url);
  return formatByScheme[protocol] ?? formatByHost.find(([host]) => host.test(hostname))?.[1] ?? "json";
}

/** The format of a webhook: the given one, or that of its URL. Undefined: the format and the URL do not go together. */
export function formatFor(url: string, format = formatOf(url)): WebhookFormat | undefined {
  // A scheme with a format of its own takes only that one, and no other scheme takes that format.
  const ofScheme = Object.values(formatByScheme).includes(format) ? format : undefined;
  return ofScheme === formatByScheme[new URL(url).protocol] ? format : undefined;
}
