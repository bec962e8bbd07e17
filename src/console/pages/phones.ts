// Site files for the Nebula app on phones. The page makes the key, and completes the file that the control plane signed.

import "../core.ts";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Node } from "../../protocol/node.ts";
import { org, send } from "../api.ts";
import { html } from "../html.ts";
import { mayAddOwn, slug } from "../me.ts";
import { isImportDue } from "../nodes.ts";
import { makePhoneKey, whyNoKey } from "../phone-key.ts";
import { refresh, useList } from "../resource.ts";
import { pathOf } from "../router.ts";
import { Choice, FormFailure, Text, useAction } from "../ui/form.ts";
import { Empty, Facts, State, When } from "../ui/parts.ts";
import { download } from "../ui/tools.ts";

type Answer = { state: "waiting"; retry_after: number } | { state?: undefined; node: Node; site: string };
type Made = { node: Node; file: string };

const systems = [
  ["android", "Android"],
  ["ios", "iPhone or iPad"],
] as const;

export function Phones() {
  const own = slug.value ?? "";
  const [again, setAgain] = useState<Node | undefined>(undefined);
  const [made, setMade] = useState<Made | undefined>(undefined);
  const [missing, setMissing] = useState<string | undefined>(undefined);
  useEffect(() => void whyNoKey().then(setMissing), []);
  const done = (made: Made | undefined) => {
    setMade(made);
    setAgain(undefined);
  };
  return html`<p><a href=${pathOf(own, "machines")}>Machines</a></p>
    <h1>Phones</h1>
    ${content()}`;

  function content() {
    if (!mayAddOwn.value)
      return html`<${Empty}
        text="The organization does not let you add machines of your own. An administrator can allow it in the settings."
      />`;
    if (missing !== undefined) return html`<p role="alert">${missing}</p>`;
    if (made !== undefined) return html`<${File} made=${made} done=${() => done(undefined)} />`;
    return html`<p>
        For the app Mobile Nebula. This page makes the key of the phone, and puts it into a file that the app
        imports. The key is sent nowhere, and not kept.
      </p>
      <${Form} key=${again?.id} again=${again} done=${done} />
      ${again === undefined ? html`<${Own} own=${own} choose=${setAgain} />` : null}`;
  }
}

function Own({ own, choose }: { own: string; choose(phone: Node): void }) {
  const { data = [] } = useList<Node>(org(own, "nodes/?page_size=1000&owner=me"));
  const phones = data.filter(({ phone, state }) => phone != null && state === "active");
  if (phones.length === 0) return null;
  return html`<h2>Your phones</h2>
    <ul class="plain-list">
      ${phones.map(
        (node) =>
          html`<li key=${node.id}>
            <a href=${pathOf(own, "machines", node.id)}><bdi>${node.name}</bdi></a>
            ${isImportDue(node.phone) ? html`<${State} name="limited" word="import it again now" />` : html`<span>import it again before <${When} at=${node.phone?.import_by ?? null} /></span>`}
            <button type="button" onClick=${() => choose(node)}>Import again</button>
          </li>`,
      )}
    </ul>`;
}

type FormProps = { again: Node | undefined; done(made: Made | undefined): void };

function Form({ again, done }: FormProps) {
  const own = slug.value ?? "";
  const [name, setName] = useState("");
  const [system, setSystem] = useState<string>(again?.phone?.system ?? "android");
  const [isWaiting, setWaiting] = useState(false);
  const isOpen = useRef(true);
  useEffect(() => () => void (isOpen.current = false), []);
  const { error, isRunning, submit } = useAction(async () => {
    setWaiting(false);
    const key = await makePhoneKey();
    const path = org(own, again === undefined ? "phones/" : `phones/${again.id}/import/`);
    const body = { system, host_public_key: key.publicPem, ...(again === undefined ? { name } : {}) };
    while (isOpen.current) {
      const answer = await send<Answer>("POST", path, body);
      if (answer.state === undefined) {
        await refresh(org(own, "nodes/"));
        const file = `${answer.site}  key: ${JSON.stringify(key.privatePem)}\n`;
        return done({ node: answer.node, file });
      }
      setWaiting(true);
      await new Promise((wake) => setTimeout(wake, answer.retry_after * 1000));
    }
  });
  return html`<h2>${again === undefined ? "Add a phone" : html`Import <bdi>${again.name}</bdi> again`}</h2>
    ${again === undefined ? null : html`<p>It keeps its name and address. What it has now stops working at once.</p>`}
    <form class="narrow" onSubmit=${submit}>
      ${again === undefined ? html`<${Text} label="Name" errors=${error?.fields["name"]} value=${name} set=${setName} control=${{ name: "name", required: true, maxlength: 63, autocapitalize: "none", spellcheck: false }} />` : null}
      <${Choice} label="System" value=${system} set=${setSystem} choices=${systems} />
      <${FormFailure} error=${error} shown=${["name"]} />
      <p role="status">
        ${isRunning && isWaiting ? "It waits for an administrator's approval. Keep this page open: only it has the key." : null}
      </p>
      <div class="actions">
        <button class="primary" disabled=${isRunning}>Make the file</button>
        ${again === undefined ? null : html`<button type="button" onClick=${() => done(undefined)}>Cancel</button>`}
      </div>
    </form>`;
}

/** The key is dropped with the download. */
function File({ made, done }: { made: Made; done(): void }) {
  const { node } = made;
  const [file, setFile] = useState<string | undefined>(made.file);
  const ends = html`<${When} at=${node.certificate?.not_after ?? null} />`;
  const save = () => {
    download(`${slug.value ?? ""}-${node.name}.yml`, made.file, "application/yaml");
    made.file = "";
    setFile(undefined);
  };
  return html`<h2>The file of <bdi>${node.name}</bdi></h2>
    ${
      file === undefined
        ? html`<p role="status">It was offered for download. This page has the key no more.</p>`
        : html`<p><button type="button" class="primary" onClick=${save}>Download the file</button></p>`
    }
    <ol>
      <li>
        The file holds the private key of the phone. Send it to nobody: best open this page on the phone
        itself.
      </li>
      <li>In the app, add a site <strong>From file</strong>, choose the file, give it a name, and save.</li>
      <li>Delete the former site of this network in the app: each import makes a new one.</li>
      <li>Delete the downloaded file.</li>
    </ol>
    <${Facts}
      facts=${[
        ["Address", node.ip_address],
        ["Valid until", ends],
        ["Import again before", html`<${When} at=${node.phone?.import_by ?? null} />`],
        ["Knows revocations until", html`<${When} at=${node.phone?.imported_at ?? null} />`],
      ]}
    />
    <p>
      The app renews nothing by itself: come here again before that date, and after each rotation of the CAs.
      It learns of revocations only by that, too: until then, at most until ${ends}, the phone accepts
      machines that are revoked from now on. What protects the others does not wait: they refuse this phone
      within seconds after it is revoked.
    </p>
    <p><button type="button" onClick=${done}>Done</button></p>`;
}
