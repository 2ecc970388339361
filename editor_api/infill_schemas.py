"""What requests to fill a gap may say: Mistral's shape and llama.cpp's."""

from __future__ import annotations

from pydantic import Field, model_validator

from editor_api.schemas import GenerationRequest, Lenient, Parts, Seed, Utf8

_USUAL_TEMPERATURE = 0.8  # llama.cpp's; several answers that are all the likeliest one would be the same


class FimRequest(GenerationRequest):
    """Text before a gap, and text after it."""

    prompt: Utf8 = Field(description="What stands before the gap.")
    suffix: Utf8 | None = Field(None, description="What stands after it.")
    random_seed: Seed = Field(None, description="The seed, as Mistral spells it.")

    @model_validator(mode="after")
    def _one_seed(self) -> FimRequest:
        if self.seed is None:
            self.seed = self.random_seed
        return self


class ExtraText(Lenient):
    """A piece of another file."""

    text: Utf8
    filename: Utf8 | None = None


class InfillRequest(GenerationRequest):
    """A gap as llama.cpp's clients describe it."""

    input_prefix: Utf8 = Field("", description="The lines before the cursor's.")
    input_suffix: Utf8 = Field("", description="What stands after the cursor.")
    input_extra: Parts[ExtraText] = Field(default_factory=list, description="Pieces of other files.")
    prompt: Utf8 = Field("", description="The cursor's line up to the cursor.")
    n_indent: int | None = Field(
        None, ge=0, description="The answer ends before a line that is indented less."
    )
    t_max_predict_ms: float | None = Field(
        None, ge=0, description="After so long, the answer ends if it has a line break; 0 for no limit."
    )
    n_cmpl: int | None = Field(None, ge=1, description="How many answers; more than one come as a list.")
    response_fields: Parts[Utf8] | None = Field(None, description="What the answer should hold, as a/b.")
    id_slot: int | None = Field(None, description="Given back as it came.")

    @model_validator(mode="after")
    def _several(self) -> InfillRequest:
        self.n = self.n_cmpl or self.n
        if (self.n or 1) > 1 and not self.temperature:
            self.temperature = _USUAL_TEMPERATURE
        return self

    @property
    def warms_up(self) -> bool:
        """Whether nothing should be said: the prompt alone is to be read."""
        return self.n_predict == 0
