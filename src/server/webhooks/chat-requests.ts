// Requests for chats. Chats want the text in a field of their own, and refuse what they do not know.

import type { WebhookFormat } from "../../api/webhooks/delivery-formats.ts";
import type { EventText } from "./event-text.ts";

type HttpFormat = Exclude<WebhookFormat, "mail" | "syslog" | "json">;

/** For chats that show Markdown: a text may hold a line of a node's log, and its links must not hide where they lead. */
const withoutLinks = (text: string) => text.replaceAll("](", "]\u200B(");

/** The lines of a text below its title. */
const belowTitle = (text: string) => text.split("\n").slice(1);

/** JSON for ntfy goes to the root of the server, and names its topic. Throws URIError if the topic cannot be decoded. */
export function ntfyTarget(url: URL): { root: URL; topic: string } {
  const [, parentPath = "/", topic = ""] = /^(.*\/)([^/]*)\/?$/.exec(url.pathname) ?? [];
  const root = new URL(url);
  root.pathname = parentPath;
  return { root, topic: decodeURIComponent(topic) };
}

/** The request for a chat. */
export const chatRequests: Readonly<
  Record<HttpFormat, (url: URL, eventText: EventText, urgent: boolean) => { url: URL; body: unknown }>
> = {
  // https://docs.slack.dev/messaging/formatting-message-text: these three characters are its markup.
  slack: (url, { text }) => ({
    url,
    body: { text: text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;") },
  }),
  // A mention such as @all would wake everybody.
  mattermost: (url, { text }) => ({ url, body: { text: withoutLinks(text).replaceAll("@", "@\u200B") } }),
  // Workflows of Teams take adaptive cards alone.
  teams: (url, { title, text }) => ({
    url,
    body: {
      type: "message",
      attachments: [
        {
          contentType: "application/vnd.microsoft.card.adaptive",
          contentUrl: null,
          content: {
            $schema: "http://adaptivecards.io/schemas/adaptive-card.json",
            type: "AdaptiveCard",
            version: "1.4",
            body: [
              { type: "TextBlock", text: withoutLinks(title), weight: "Bolder", wrap: true },
              // Teams reads lines as Markdown, which needs an empty line for a line break.
              { type: "TextBlock", text: belowTitle(withoutLinks(text)).join("\n\n"), wrap: true },
            ],
          },
        },
      ],
    },
  }),
  discord: (url, { text }) => ({
    url,
    body: { content: withoutLinks(text), allowed_mentions: { parse: [] } },
  }),
  ntfy(url, { title, text }, urgent) {
    const { root, topic } = ntfyTarget(url);
    const message = belowTitle(text).join("\n");
    return { url: root, body: { topic, title, message, priority: urgent ? 5 : 3 } };
  },
};
