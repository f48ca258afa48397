"""What a chain begins with: files that are imported, or a dataset."""

from offline_core.data.curation.converting import ConversionResult
from offline_core.data.datasets.dataset import Dataset, is_dataset, open_dataset
from offline_core.data.importing.config import ConversionConfig, ImportConfig
from offline_core.data.importing.report import ImportResult
from offline_core.data.store.location import Location
from tasks import stages as tasks
from tasks.chain import Stages, reading


def episodes_of(
    stages: Stages, source: str | list[str], importing: ImportConfig, conversion: ConversionConfig, place: Location
) -> tuple[Dataset, ImportResult | None, ConversionResult | None]:
    """The source as episodes: imported, converted from a table, or as it is."""
    if isinstance(source, list) or not is_dataset(source):
        imported = stages.run("import", tasks.import_data, importing, source=source, output=place.child("imported").uri)
        return open_dataset(imported.dataset.uri, imported.dataset.version), imported, None
    data = open_dataset(source)
    if data.manifest.format == "episodes":
        return data, None, None
    output = place.child("episodes").uri
    converted = stages.run("convert to episodes", tasks.convert, conversion, **reading(data.ref), output=output)
    return open_dataset(converted.dataset.uri, converted.dataset.version), None, converted
