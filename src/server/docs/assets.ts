// The two viewers of the OpenAPI document, embedded in the executable: pages load nothing from other hosts.

import redoc from "redoc/bundles/redoc.standalone.js" with { type: "file" };
import swaggerCss from "swagger-ui-dist/swagger-ui.css" with { type: "file" };
import swagger from "swagger-ui-dist/swagger-ui-bundle.js" with { type: "file" };

export const assets: Readonly<Record<string, { path: string; type: string }>> = {
  "swagger-ui.js": { path: swagger, type: "text/javascript; charset=utf-8" },
  "swagger-ui.css": { path: swaggerCss, type: "text/css; charset=utf-8" },
  "redoc.js": { path: redoc, type: "text/javascript; charset=utf-8" },
};

/** ReDoc would load its vendor's logo from this URL. An empty picture replaces it. */
const vendorLogo = "https://cdn.redoc.ly/redoc/logo-mini.svg";
const emptyPicture = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg'/%3E";

type File = { bytes: Uint8Array<ArrayBuffer>; type: string };

/** Made once: the files are large, and anyone may ask for them. */
const made = new Map<string, Promise<File>>();

export function readAsset(name: string): Promise<File> | undefined {
  const asset = Object.hasOwn(assets, name) ? assets[name] : undefined;
  if (asset === undefined) return undefined;
  let file = made.get(name);
  if (file === undefined) {
    file = make(asset);
    made.set(name, file);
    // Do not cache failures.
    file.catch(() => made.delete(name));
  }
  return file;
}

async function make({ path, type }: { path: string; type: string }): Promise<File> {
  const text = (await Bun.file(path).text()).replaceAll(vendorLogo, emptyPicture);
  return { bytes: new TextEncoder().encode(text), type };
}
