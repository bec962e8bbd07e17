// Site files for the Nebula app on phones. The page makes the key, and completes the file that the control plane signed.

import "../core.ts";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Node } from "../../protocol/node.ts";
import { org, send } from "../api.ts";
import { html } from "../html.ts";
import { hold } from "../access/unsaved.ts";
import { mayAddOwn, mayAdminister, slug } from "../me.ts";
import { isImportDue } from "../nodes.ts";
import { makePhoneKey, whyNoKey } from "../phone-key.ts";
import { registrationsPath, type Registration } from "../registrations.ts";
import { refresh, useList } from "../resource.ts";
import { pathOf } from "../router.ts";
import { Choice, FormFailure, Text, useAction } from "../ui/form.ts";
import { Confirm, dated, Empty, Facts, State, When } from "../ui/parts.ts";
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
        For the app Mobile Nebula of Defined Networking. This page makes the key of the phone, and puts it
        into a file that the app imports. The key is sent nowhere, and not kept. A new phone is in no group:
        an administrator gives it some on its page, and then it is imported again.
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
            <a href=${pathOf(own, "machines", node.id)}><bdi>${node.name}</bdi></a
            >${" "}
            ${isImportDue(node.phone) ? html`<${State} name="limited" word="import it again now" />` : html`<span>(import it again: <${When} at=${node.phone?.import_by ?? null} />)</span>`}
            ${" "}<button type="button" onClick=${() => choose(node)}>Import again</button>
          </li>`,
      )}
    </ul>`;
}

type FormProps = { again: Node | undefined; done(made: Made | undefined): void };

function Form({ again, done }: FormProps) {
  const own = slug.value ?? "";
  const [name, setName] = useState("");
  const [system, setSystem] = useState<string>(again?.phone?.system ?? "android");
  const [waiting, wait] = useState<string | undefined>(undefined);
  useHold(waiting !== undefined);
  const isOpen = useRef(true);
  useEffect(() => () => void (isOpen.current = false), []);
  const { error, isRunning, submit } = useAction(async () => {
    wait(undefined);
    const key = await makePhoneKey();
    const path = org(own, again === undefined ? "phones/" : `phones/${again.id}/import/`);
    const body = {
      system,
      host_public_key: key.publicPem,
      ...(again === undefined ? { name: name.trim().toLowerCase().replace(/\s+/g, "-") } : {}),
    };
    try {
      while (isOpen.current) {
        const answer = await send<Answer>("POST", path, body);
        if (answer.state === undefined) {
          await refresh(org(own, "nodes/"));
          const file = `${answer.site}  key: ${JSON.stringify(key.privatePem)}\n`;
          return done({ node: answer.node, file });
        }
        wait(key.sha256);
        await new Promise((wake) => setTimeout(wake, answer.retry_after * 1000));
      }
    } finally {
      wait(undefined);
    }
  });
  return html`<h2>${again === undefined ? "Add a phone" : html`Import <bdi>${again.name}</bdi> again`}</h2>
    ${again === undefined ? null : html`<p>It keeps its name and address. What it has now stops working at once.</p>`}
    <form class="narrow" onSubmit=${submit}>
      ${again === undefined ? html`<${Text} label="Name" help="Small letters, digits and -." errors=${error?.fields["name"]} value=${name} set=${setName} control=${{ name: "name", required: true, maxlength: 63, autocapitalize: "none", spellcheck: false }} />` : null}
      <${Choice} label="System" value=${system} set=${setSystem} choices=${systems} />
      <${FormFailure} error=${error} shown=${["name"]} />
      <div role="status">
        ${waiting === undefined ? null : html`<${Waits} own=${own} sha256=${waiting} />`}
      </div>
      <div class="actions">
        <button class="primary" disabled=${isRunning}>Make the file</button>
        ${again === undefined ? null : html`<button type="button" onClick=${() => done(undefined)}>Cancel</button>`}
      </div>
    </form>`;
}

/** The browser asks before it forgets a key that exists only here. */
function useHold(isOn: boolean) {
  useEffect(() => {
    if (isOn) addEventListener("beforeunload", hold);
    return () => removeEventListener("beforeunload", hold);
  }, [isOn]);
}

/** Whoever may approve does it here: on the way to another page the key would be lost. */
function Waits({ own, sha256 }: { own: string; sha256: string }) {
  const { data = [] } = useList<Registration>(mayAdminister.value ? registrationsPath(own) : "");
  const request = data.find(({ key_sha256 }) => key_sha256 === sha256);
  const { error, isRunning, run } = useAction(async () => {
    await send("POST", org(own, `registrations/${request?.id}/approve/`));
    await refresh(org(own, ""));
  });
  return html`<p>
      It waits for an administrator's approval, with key <code>${sha256.slice(0, 16)}</code>. Keep this page
      open: only it has the key.
    </p>
    ${request === undefined ? null : html`<p><button type="button" class="primary" disabled=${isRunning} onClick=${run}>Approve it</button></p>`}
    <${FormFailure} error=${error} />`;
}

/** The key is dropped with the download. */
function File({ made, done }: { made: Made; done(): void }) {
  const { node } = made;
  const [file, setFile] = useState<string | undefined>(made.file);
  const [isLeaving, leave] = useState(false);
  useHold(file !== undefined);
  const day = (at: string | null | undefined) => (at == null ? "never" : dated(Date.parse(at)));
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
        ["Valid until", day(node.certificate?.not_after)],
        ["Import again before", day(node.phone?.import_by)],
        ["Made, with all revocations until then", day(node.phone?.imported_at)],
      ]}
    />
    <p>
      The app renews nothing by itself: come here again before that date, and after each rotation of the CAs.
      It learns of revocations only by that, too: until then, or until its certificate ends, the phone accepts
      machines that are revoked from now on. What protects the others does not wait: they refuse this phone
      within seconds after it is revoked.
    </p>
    <p>
      <button type="button" onClick=${() => (file === undefined ? done() : leave(true))}>Done</button>
    </p>
    ${
      isLeaving
        ? html`<${Confirm}
            title="Leave without the file?"
            action="Leave"
            effect="You have not downloaded it. Its key is lost then, and you have to import the phone again."
            run=${async () => done()}
            close=${() => leave(false)}
          />`
        : null
    }`;
}
