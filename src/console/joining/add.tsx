// Adds a node in three steps: what it is, the line with the join key to paste on its machine, and its arrival.

import { longestLifeOnCommandLine, registrationTokensApi } from "../../api/tokens/registration-tokens.ts";
import { apiPath } from "../../api/endpoint.ts";
import { useState } from "preact/hooks";
import { mayAddOwn, mayAdminister, me, currentSlug } from "../contact/me.ts";
import { pathOf, query, setQuery } from "../frame/router.ts";
import type { Terminal } from "../words/terminal.ts";
import { exact, timeFormat, utc } from "../words/times.ts";
import { Button } from "../ui/button.tsx";
import type { IconName } from "../ui/drawings.ts";
import { Icon } from "../ui/icon.tsx";
import { Page, Panel, Step } from "../ui/page.tsx";
import { Empty, Line } from "../ui/parts.tsx";
import { Tag } from "../ui/tag.tsx";
import { Arrival } from "./arrival.tsx";
import type { Joined } from "./arriving-machines.tsx";
import type { Token } from "./paste.tsx";
import { plural } from "../words/numbers.ts";
import { bodyOf, JoinKeyForm, wordsOf, type Draft } from "./join-key-form.tsx";
import { Prospects } from "./prospects.tsx";

type Kind = "server" | "lighthouse" | "own" | "phone";

const kinds: Readonly<Record<Kind, readonly [icon: IconName, title: string, help: string]>> = {
  server: ["machines", "Server", "A machine or container"],
  lighthouse: ["lighthouse", "Lighthouse", "With a public address"],
  own: ["laptop", "My own", "Confirmed by you, no key"],
  phone: ["phone", "Phone", "A file for the app"],
};

export function AddNode() {
  const slug = currentSlug.value ?? "";
  const [draft, setDraft] = useState<Draft>({
    groups: "",
    uses: "1",
    expires_in: longestLifeOnCommandLine,
    name: "",
    isApproved: false,
  });
  const [token, setToken] = useState<Token>();
  const [joined, setJoined] = useState<Joined>();
  const startAgain = () => {
    setToken(undefined);
    setJoined(undefined);
  };
  const offered: Kind[] = [
    ...(mayAdminister.value ? (["server", "lighthouse"] as const) : []),
    ...(mayAddOwn.value ? (["own", "phone"] as const) : []),
  ];
  const kind = offered.find((each) => each === query.value.get("kind")) ?? offered[0];
  const above = <a href={pathOf(slug, "nodes")}>Nodes</a>;
  if (kind === undefined)
    return (
      <Page title="Add a node" above={above}>
        <Empty text="Administrators of the organization add nodes." />
      </Page>
    );
  const isLighthouse = kind === "lighthouse";
  const body = bodyOf(draft, { isLighthouse });
  const isOwn = kind === "own" || kind === "phone";
  const terminal: Terminal | undefined = isOwn
    ? undefined
    : {
        command: wordsOf(slug, body),
        call: ["POST", apiPath(registrationTokensApi.create, { slug }), body],
      };
  return (
    <Page title="Add a node" above={above} terminal={terminal}>
      <div class="start">
        <ol class="steps">
          {token === undefined ? (
            <Step at={1} title="What" state="here">
              <Kinds offered={offered} kind={kind} />
              {isOwn ? null : <JoinKeyForm {...{ draft, setDraft, isLighthouse }} made={setToken} />}
            </Step>
          ) : (
            <Step at={1} title="What" state="done">
              <Made token={token} again={startAgain} />
            </Step>
          )}
          {isOwn ? <OwnStep kind={kind} /> : null}
          {!isOwn && token === undefined ? <LaterSteps /> : null}
          {isOwn || token === undefined ? null : (
            <Arrival {...{ token, joined, setJoined }} again={startAgain} />
          )}
        </ol>
        <aside class="stackd">
          <Prospects
            groups={isOwn ? [] : body.groups}
            ownerId={isOwn ? (me.value?.id ?? null) : null}
            address={joined?.address}
          />
          <Panel title="What leaves the machine" hasRoom={true}>
            <p class="quiet">
              {kind === "phone"
                ? "Its public key and name. The private key is made in this browser and goes into the file, nowhere else."
                : "Its public key, name, system and addresses. The private key is made there and stays there."}
            </p>
          </Panel>
        </aside>
      </div>
    </Page>
  );
}

const Kinds = ({ offered, kind }: { offered: readonly Kind[]; kind: Kind }) => (
  <fieldset class="choices">
    <legend class="unseen">What is it?</legend>
    {offered.map((each) => {
      const [icon, title, help] = kinds[each];
      return (
        <label key={each} class="choice">
          <input type="radio" name="kind" checked={each === kind} onChange={() => setQuery({ kind: each })} />
          <Icon name={icon} />
          {title}
          <small>{help}</small>
        </label>
      );
    })}
  </fieldset>
);

const OwnStep = ({ kind }: { kind: "own" | "phone" }) => (
  <Step at={2} title={kind === "own" ? "Type a line on it" : "Make its file"} state="here">
    {kind === "own" ? <OwnLine /> : <PhoneLink />}
  </Step>
);

const LaterSteps = () => (
  <>
    <Step at={2} title="Paste a line on it" state="later">
      <p class="faint">Linux, macOS, Windows; or a QR code.</p>
    </Step>
    <Step at={3} title="See it arrive" state="later">
      <p class="faint">Here, as it happens.</p>
    </Step>
  </>
);

/** Without a key: the user confirms the machine on the page `join`. */
const OwnLine = () => (
  <>
    <p class="quiet">
      It needs no key: type this there, open the address that it shows, and sign in. The node will be yours.
    </p>
    <div class="mt8">
      <Line text={`sudo agent up ${location.origin} --org ${currentSlug.value ?? ""}`} />
    </div>
  </>
);

const PhoneLink = () => (
  <p class="group mt8">
    <Button kind="primary" href={pathOf(currentSlug.value ?? "", "phones")}>
      Add a phone
    </Button>
  </p>
);

/** The first step, once it is done: roles and groups that the key gives, and when it ends. */
function Made({ token, again }: { token: Token; again(): void }) {
  const { uses, groups, is_lighthouse, expires_at } = token;
  const end = Date.parse(expires_at);
  return (
    <p class="quiet">
      {plural(uses, "node")}
      {groups.length === 0 ? ", in no group" : " in "}
      {groups.map((group) => (
        <Tag key={group} text={group} />
      ))}
      {is_lighthouse ? ", as a lighthouse" : ""}; key until{" "}
      <time datetime={utc(end)} title={exact(end)}>
        {/* Within 20 hours the time of day alone is clear. */}
        {timeFormat(
          end - Date.now() < 20 * 3_600_000
            ? { timeStyle: "short" }
            : { dateStyle: "medium", timeStyle: "short" },
        ).format(end)}
      </time>
      .{" "}
      <button type="button" class="plain as-link" onClick={again}>
        Make another join key
      </button>
    </p>
  );
}
