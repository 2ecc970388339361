// Writes editor_api/static/vendor: the bundle of CodeMirror, Swagger UI, and the licences of all that is in them.
// npm ci && npm run build; the same lock file gives the same bytes.
import { build } from "esbuild";
import { copyFile, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const vendor = process.argv[2] ?? join(here, "..", "editor_api", "static", "vendor");
const swagger = join(here, "node_modules", "swagger-ui-dist");
const SWAGGER_FILES = ["swagger-ui-bundle.js", "swagger-ui-bundle.js.LICENSE.txt", "swagger-ui.css"];

await rm(vendor, { recursive: true, force: true });
await mkdir(vendor, { recursive: true });
const { metafile } = await build({
  absWorkingDir: here,
  entryPoints: ["src/codemirror.js"],
  outfile: join(vendor, "codemirror.js"),
  bundle: true,
  format: "esm",
  target: "es2022",
  charset: "ascii",
  legalComments: "none", // LICENSES.txt has them whole
  minify: true,
  metafile: true,
});
for (const name of SWAGGER_FILES) await copyFile(join(swagger, name), join(vendor, name));
await writeFile(join(vendor, "LICENSES.txt"), await licences());

async function licences() {
  const packages = new Set(["swagger-ui-dist"]);
  for (const path of Object.keys(metafile.inputs)) {
    const [, name] = path.match(/^node_modules\/((?:@[^/]+\/)?[^/]+)\//) ?? [];
    if (name) packages.add(name);
  }
  const parts = [];
  for (const name of [...packages].sort()) parts.push(await licence(name));
  return `What the files in this folder are made of. web/build.mjs wrote them.\n\n${parts.join("\n")}`;
}

async function licence(name) {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const files = (await readdir(folder)).filter((file) =>
    /^(licen[cs]e|notice)/i.test(file),
  );
  if (!files.length) throw new Error(`${name} has no licence file`);
  const texts = await Promise.all(files.sort().map((file) => readFile(join(folder, file), "utf8")));
  return `${"=".repeat(100)}\n${name} ${version}, ${license}\n\n${texts.map((text) => text.trim()).join("\n\n")}\n`;
}
